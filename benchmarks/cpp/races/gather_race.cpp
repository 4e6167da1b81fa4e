#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "core/memory/parallel.hpp"
#include "core/memory/stream_copy.hpp"
#include "core/random.hpp"
#include "core/stage/echo_buffer.hpp"
#include "races.hpp"

namespace pyecho::bench {
namespace {

constexpr std::size_t kSourceBytes = std::size_t{256} << 20;
constexpr std::size_t kOrderLength = std::size_t{1} << 20;
// Batches that bare memcpy writes to in turn, in addition to one per thread: about as many as pyecho has.
constexpr std::size_t kBatchesAhead = 4;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

GatherRace::GatherRace(const Workload& workload)
    : workload_(workload),
      source_(std::max(workload.row_bytes, std::min(kSourceBytes, workload.fresh * workload.row_bytes))),
      pool_(workload.shuffle_buffer * workload.row_bytes),
      batches_(blocks_for(std::max(1U, workload.threads)) * batch_bytes()),
      order_(kOrderLength) {
  Xoshiro256 random(1);
  for (std::uint32_t& slot : order_) {
    slot = random.below(workload.shuffle_buffer);
  }
}

// Returns a multiple of `threads`, because each thread writes to its own blocks.
std::size_t GatherRace::blocks_for(unsigned threads) noexcept {
  return (threads + kBatchesAhead + threads - 1) / threads * threads;
}

std::size_t GatherRace::batch_bytes() const noexcept { return workload_.batch_size * workload_.row_bytes; }

const std::byte* GatherRace::source_row(std::uint64_t index) const noexcept {
  return source_.data() + index % (source_.size_bytes() / workload_.row_bytes) * workload_.row_bytes;
}

// Copies the share of one thread of bare memcpy: every threads-th fresh row, and whole batches of uses. One thread may
// write a row of the pool while another reads it; that is harmless, because the data is never checked.
void GatherRace::copy_share(unsigned thread, unsigned threads) noexcept {
  const Workload& work = workload_;
  const std::size_t blocks = blocks_for(threads);
  std::uint64_t use = thread * (kOrderLength / threads);
  std::uint64_t row = 0;
  std::uint64_t block = thread;
  for (std::uint64_t fresh = thread; fresh < work.fresh; fresh += threads) {
    std::memcpy(pool_.data() + fresh % work.shuffle_buffer * work.row_bytes, source_row(fresh), work.row_bytes);
    for (std::uint32_t repeat = 0; repeat < work.factor; ++repeat, ++use) {
      std::memcpy(batches_.data() + (block * work.batch_size + row) * work.row_bytes,
                  pool_.data() + order_[use % kOrderLength] * work.row_bytes, work.row_bytes);
      if (++row == work.batch_size) {
        row = 0;
        block = (block + threads) % blocks;
      }
    }
  }
}

double GatherRace::memcpy_seconds(unsigned threads) {
  if (const std::size_t needed = blocks_for(threads) * batch_bytes(); needed > batches_.size_bytes()) {
    batches_ = HostMemory(needed);
  }
  const Clock::time_point start = Clock::now();
  in_parallel(threads, [&](std::size_t thread) { copy_share(static_cast<unsigned>(thread), threads); });
  return seconds_since(start);
}

double GatherRace::echo_seconds() {
  EchoConfig config;
  config.leaves = {workload_.row_bytes};
  config.plan.batch_size = workload_.batch_size;
  config.plan.capacity = workload_.shuffle_buffer;
  config.plan.factor = workload_.factor;
  config.threads = workload_.threads;
  EchoBuffer buffer(config);
  const Clock::time_point start = Clock::now();
  std::thread producer([&] {
    // Hands over in groups, the same way as rows of a batch are put.
    std::array<Reservation, 32> group{};
    for (std::uint64_t fresh = 0; fresh < workload_.fresh;) {
      const std::size_t wanted = std::min<std::uint64_t>(group.size(), workload_.fresh - fresh);
      std::uint32_t reserved = 0;
      if (buffer.input().reserve(std::span(group).first(wanted), reserved, kNever) != Outcome::kOk) {
        return;
      }
      for (std::size_t i = 0; i < reserved; ++i, ++fresh) {
        copy_bytes(buffer.slot_data(group[i].slot), source_row(fresh), workload_.row_bytes,
                   buffer.input().stream_slots());
      }
      buffer.input().commit(std::span(group).first(reserved));
    }
    buffer.input().close();
  });
  std::uint64_t rows = 0;
  for (Lease lease; buffer.acquire(lease, kNever) == Outcome::kOk; lease.reset()) {
    rows += lease.rows();
  }
  const double seconds = seconds_since(start);
  producer.join();
  if (rows != workload_.fresh * workload_.factor) {
    throw std::logic_error("not every use of every row arrived");
  }
  return seconds;
}

}  // namespace pyecho::bench
