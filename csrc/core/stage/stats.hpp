// Statistics of a stage, and the place of its consumer.
#pragma once

#include <cstdint>

#include "core/plan/plan_config.hpp"
#include "core/stage/clocks.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

struct EchoStats {
  std::uint64_t read = 0;            // items committed
  std::uint64_t emitted = 0;         // uses handed to the consumer
  std::uint64_t fresh = 0;           // of these, first ones
  std::uint64_t batches = 0;         // batches handed to the consumer
  std::uint64_t bytes_gathered = 0;  // payload of the uses handed to the consumer
  std::uint64_t consumer_wait_ns = 0;
  std::uint64_t downstream_ns = 0;  // of an EchoQueue: up to the consumer's last fresh item
  std::uint32_t resident = 0;       // items in the planner's pool, of capacity
  std::uint64_t outstanding_leases = 0;
  std::uint64_t batch_blocks = 0;  // batches that have memory
  std::uint64_t grown_blocks = 0;  // blocks added because all others were in use
};

// Written by the consumer, read by any thread, relaxed, statistics. On a line of its own, because it is written for each
// use of an EchoQueue.
class alignas(kCacheLineBytes) ConsumerCounts {
 public:
  ConsumerClock clock;

  void count(std::uint64_t uses, std::uint64_t fresh) noexcept {
    emitted_.store_relaxed(emitted_.load_relaxed() + uses);
    fresh_.store_relaxed(fresh_.load_relaxed() + fresh);
  }
  void count_batch() noexcept { batches_.store_relaxed(batches_.load_relaxed() + 1); }

  // Returns the statistics of a stage without batches; those of batches are 0.
  [[nodiscard]] EchoStats stats(std::uint64_t read, std::uint32_t resident) const noexcept {
    const std::uint64_t emitted = emitted_.load_relaxed();
    return {.read = read,
            .emitted = emitted,
            .fresh = fresh_.load_relaxed(),
            .batches = emitted,
            .consumer_wait_ns = clock.wait_ns(),
            .downstream_ns = clock.downstream_ns(),
            .resident = resident};
  }
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_.load_relaxed(); }

 private:
  Atomic<std::uint64_t> emitted_;
  Atomic<std::uint64_t> fresh_;
  Atomic<std::uint64_t> batches_;
};

// Begins an epoch of a stage, and drops the rest of the last one. Waits for threads that copy a batch. No producer may be
// inside or have open reservations (std::logic_error), and stop() and close() must not be called meanwhile.
template <class Stage>
Outcome begin_epoch(Stage& stage, std::uint64_t epoch, const Extent& extent) {
  if (stage.input().forked()) {
    return Outcome::kForked;
  }
  stage.resume(stage.begin({.epoch = epoch, .extent = extent}));
  stage.set_halted(false);
  return Outcome::kOk;
}

}  // namespace pyecho
