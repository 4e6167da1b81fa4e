// Example echoing against its limit: bare memcpy of the same bytes with the same number of threads.
//
// Both sides copy each fresh row once into the pool and each of its uses once out of it, in random order, from and to
// the same kind of memory (page-aligned, huge pages where granted, touched beforehand). The limit is a plain loop per
// thread over precomputed slot numbers: no hand-over, no random numbers, no order among threads. pyecho gets its rows
// from one producer thread, gathers with the given number of workers, and its consumer drops every batch at once.
// The two alternate, so that a noisy machine favours neither; the ratio is taken per pair.
//
//     gather_benchmark [threads] [factor] [capacity] [pairs]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/echo_buffer.hpp"

namespace {

using pyecho::Clock;
using pyecho::HostMemory;

struct Workload {
  std::size_t row_bytes;
  std::uint32_t rows_per_batch;
  std::uint32_t capacity;
  std::uint32_t factor;
  std::uint64_t fresh;  // rows taken from the source
  unsigned threads;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr std::size_t kSourceBytes = std::size_t{256} << 20;

// Rows of the source, larger than any cache, read in order and over again.
const std::byte* source_row(const HostMemory& source, std::uint64_t index, std::size_t row_bytes) {
  return source.data() + index % (source.size_bytes() / row_bytes) * row_bytes;
}

double run_memcpy(const Workload& work, const HostMemory& source) {
  const std::uint32_t blocks = work.threads + 4;  // as many as pyecho has by default
  const HostMemory pool(work.capacity * work.row_bytes, {.threads = 2});
  const HostMemory batches(blocks * work.rows_per_batch * work.row_bytes, {.threads = 2});
  std::vector<std::uint32_t> order(std::size_t{1} << 20);
  std::mt19937 random(1);
  std::generate(order.begin(), order.end(), [&] { return random() % work.capacity; });
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < work.threads; ++thread) {
    threads.emplace_back([&, thread] {
      std::uint64_t use = thread * (order.size() / work.threads);
      for (std::uint64_t fresh = thread; fresh < work.fresh; fresh += work.threads) {
        std::memcpy(pool.data() + fresh % work.capacity * work.row_bytes, source_row(source, fresh, work.row_bytes),
                    work.row_bytes);
        for (std::uint32_t repeat = 0; repeat < work.factor; ++repeat, ++use) {
          // Batches are written in order, each by one thread, as a gather does.
          const std::uint64_t row = use % work.rows_per_batch;
          const std::uint64_t block = (use / work.rows_per_batch * work.threads + thread) % blocks;
          std::memcpy(batches.data() + (block * work.rows_per_batch + row) * work.row_bytes,
                      pool.data() + order[use % order.size()] * work.row_bytes, work.row_bytes);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return seconds_since(start);
}

double run_pyecho(const Workload& work, const HostMemory& source) {
  pyecho::EchoBufferConfig config;
  config.leaf_bytes = {work.row_bytes};
  config.batch_rows = work.rows_per_batch;
  config.capacity = work.capacity;
  config.factor = work.factor;
  config.threads = work.threads;
  pyecho::EchoBuffer buffer(config);
  const auto start = Clock::now();
  std::thread producer([&] {
    // As a batch of rows is put: handed over in groups.
    std::array<pyecho::Reservation, 32> group;
    for (std::uint64_t fresh = 0; fresh < work.fresh;) {
      std::size_t reserved = 0;
      while (reserved < std::min<std::uint64_t>(group.size(), work.fresh - fresh) &&
             buffer.try_reserve(group[reserved]) == pyecho::Outcome::kOk) {
        ++reserved;
      }
      if (reserved == 0) {
        static_cast<void>(buffer.reserve(group[reserved++], pyecho::kNever));
      }
      for (std::size_t i = 0; i < reserved; ++i, ++fresh) {
        std::memcpy(buffer.slot_data(group[i].slot), source_row(source, fresh, work.row_bytes), work.row_bytes);
      }
      for (std::size_t i = 0; i < reserved; ++i) {
        buffer.commit_quietly(group[i]);
      }
      buffer.announce_committed(reserved);
    }
    buffer.close();
  });
  pyecho::Lease lease;
  std::uint64_t rows = 0;
  while (buffer.acquire(lease, pyecho::kNever) == pyecho::Outcome::kOk) {
    rows += lease.rows();
    lease.reset();
  }
  const double seconds = seconds_since(start);
  producer.join();
  if (rows != work.fresh * work.factor) {
    std::fprintf(stderr, "emitted %llu rows instead of %llu\n", static_cast<unsigned long long>(rows),
                 static_cast<unsigned long long>(work.fresh * work.factor));
    std::exit(1);
  }
  return seconds;
}

struct Spread {
  double median, low, high;
};

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int position, unsigned fallback) {
    return argc > position ? static_cast<unsigned>(std::atoi(argv[position])) : fallback;
  };
  const unsigned threads = argument(1, std::max(1U, std::thread::hardware_concurrency()));
  const std::uint32_t factor = argument(2, 4);
  const std::uint32_t capacity = argument(3, 4096);
  const unsigned pairs = argument(4, 9);
  const HostMemory source(kSourceBytes, {.threads = threads});
  std::printf("threads %u, factor %u, capacity %u, median of %u pairs [lowest, highest]\n", threads, factor, capacity,
              pairs);
  std::printf("%9s %22s %22s %26s %24s\n", "row bytes", "memcpy ns/emission", "pyecho ns/emission",
              "pyecho speed / memcpy's", "extra ns/emission");
  for (const std::size_t row_bytes : {std::size_t{64}, std::size_t{256}, std::size_t{3072}, std::size_t{150528}}) {
    const std::uint64_t total = row_bytes >= 100000 ? std::uint64_t{6} << 30
                                : row_bytes >= 1000 ? std::uint64_t{3} << 30
                                                    : std::uint64_t{1} << 30;
    const std::uint64_t fresh = std::min<std::uint64_t>(total / row_bytes / factor, 1500000);
    const Workload work{row_bytes, 256, capacity, factor, fresh, threads};
    const double emissions = static_cast<double>(fresh * factor);
    std::vector<double> bare;
    std::vector<double> echo;
    std::vector<double> ratio;
    std::vector<double> extra;
    for (unsigned pair = 0; pair < pairs; ++pair) {
      bare.push_back(run_memcpy(work, source) / emissions * 1e9);
      echo.push_back(run_pyecho(work, source) / emissions * 1e9);
      ratio.push_back(bare.back() / echo.back());
      extra.push_back(echo.back() - bare.back());
    }
    const Spread b = spread(bare);
    const Spread e = spread(echo);
    const Spread r = spread(ratio);
    const Spread x = spread(extra);
    std::printf("%9zu %8.1f [%5.1f,%6.1f] %8.1f [%5.1f,%6.1f] %10.2f [%5.2f, %5.2f] %10.1f [%5.1f, %5.1f]\n", row_bytes,
                b.median, b.low, b.high, e.median, e.low, e.high, r.median, r.low, r.high, x.median, x.low, x.high);
    std::fflush(stdout);
  }
}
