// Measures for which amount of memory streaming stores pay. The threshold in stream_copy.cpp is based on it.
//
// One thread copies random rows of 150 KB out of a pool into blocks, in turn. Another one reads each whole block, as a
// consumer would. Both kinds of copy take turns, in reverse order every other round; the first round does not count.
//
//     stream_benchmark [rounds]
//
// Prints a table: median nanoseconds to write and to read a row.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/memory/host_memory.hpp"
#include "core/memory/stream_copy.hpp"
#include "core/random.hpp"
#include "core/sync/event_count.hpp"

namespace {

constexpr std::size_t kRowBytes = 150'528;
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kBytesWritten = std::size_t{3} << 30;

struct Shape {
  std::size_t pool_rows;
  std::size_t block_rows;
  std::size_t blocks;
};

struct Taken {
  double write_ns;
  double read_ns;
};

using Clock = std::chrono::steady_clock;

double since_ns(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

template <class Condition>
void await(const Condition& condition) {
  while (!condition()) {
    pyecho::relax_processor();
  }
}

// Writes every page, so that none of them is the system's page of zeros.
pyecho::HostMemory filled(std::size_t size_bytes) {
  pyecho::HostMemory memory(size_bytes);
  std::memset(memory.data(), 1, size_bytes);
  return memory;
}

Taken run(const Shape& shape, const std::byte* pool, const std::vector<pyecho::HostMemory>& blocks, bool stream) {
  const std::size_t turns = std::max<std::size_t>(shape.blocks, kBytesWritten / (shape.block_rows * kRowBytes));
  std::atomic<std::size_t> written{0};
  std::atomic<std::size_t> read{0};
  Taken taken{};
  std::thread writer([&] {
    pyecho::Xoshiro256 random(1);
    for (std::size_t turn = 0; turn < turns; ++turn) {
      await([&] { return turn < read.load(std::memory_order_acquire) + shape.blocks; });
      const Clock::time_point start = Clock::now();
      for (std::size_t row = 0; row < shape.block_rows; ++row) {
        const std::size_t from = random.below(static_cast<std::uint32_t>(shape.pool_rows));
        pyecho::copy_bytes(blocks[turn % shape.blocks].data() + row * kRowBytes, pool + from * kRowBytes, kRowBytes,
                           stream);
      }
      pyecho::stream_fence();
      taken.write_ns += since_ns(start);
      written.store(turn + 1, std::memory_order_release);
    }
  });
  std::uint64_t sum = 0;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    await([&] { return written.load(std::memory_order_acquire) > turn; });
    const Clock::time_point start = Clock::now();
    for (std::size_t line = 0; line < shape.block_rows * kRowBytes; line += kLineBytes) {
      sum += static_cast<std::uint64_t>(blocks[turn % shape.blocks].data()[line]);
    }
    taken.read_ns += since_ns(start);
    read.store(turn + 1, std::memory_order_release);
  }
  writer.join();
  const std::size_t rows = turns * shape.block_rows;
  if (sum != rows * (kRowBytes / kLineBytes)) {
    std::fputs("stream_benchmark: what was read is not what was written\n", stderr);
    std::exit(1);
  }
  return {taken.write_ns / static_cast<double>(rows), taken.read_ns / static_cast<double>(rows)};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  if (rounds < 1) {
    std::fputs("usage: stream_benchmark [rounds >= 1]\n", stderr);
    return 2;
  }
  std::puts("pool + blocks, MiB | write, ns: plain, streamed | read, ns: plain, streamed");
  for (const Shape shape :
       {Shape{64, 8, 4}, Shape{64, 16, 4}, Shape{256, 32, 4}, Shape{1024, 64, 4}, Shape{256, 128, 2},
        Shape{256, 128, 4}, Shape{1024, 128, 4}, Shape{256, 256, 4}, Shape{1024, 256, 4}}) {
    const pyecho::HostMemory pool = filled(shape.pool_rows * kRowBytes);
    std::vector<pyecho::HostMemory> blocks;
    for (std::size_t block = 0; block < shape.blocks; ++block) {
      blocks.push_back(filled(shape.block_rows * kRowBytes));
    }
    std::array<std::vector<double>, 2> write;
    std::array<std::vector<double>, 2> read;
    for (int round = 0; round <= rounds; ++round) {
      for (int turn = 0; turn < 2; ++turn) {
        const bool stream = (turn + round) % 2 == 1;
        const Taken taken = run(shape, pool.data(), blocks, stream);
        if (round > 0) {
          write[stream ? 1 : 0].push_back(taken.write_ns);
          read[stream ? 1 : 0].push_back(taken.read_ns);
        }
      }
    }
    std::printf("%6zu + %-9zu | %9.0f %16.0f | %8.0f %17.0f\n", (shape.pool_rows * kRowBytes) >> 20U,
                (shape.block_rows * shape.blocks * kRowBytes) >> 20U, median(write[0]), median(write[1]),
                median(read[0]), median(read[1]));
  }
}
