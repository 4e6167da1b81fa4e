// The common part of both stages of echoing, EchoBuffer and EchoQueue: slots that producers fill, a consumer's epochs,
// and their statistics.
//
// emitted_, fresh_: written by the consumer, read by any thread, relaxed, statistics.
#pragma once

#include <cstdint>
#include <utility>

#include "core/plan/replay.hpp"
#include "core/stage/clocks.hpp"
#include "core/stage/plan_view.hpp"
#include "core/stage/slot_pool.hpp"

namespace pyecho {

struct EchoStats {
  std::uint64_t read;            // items committed
  std::uint64_t emitted;         // uses handed to the consumer
  std::uint64_t fresh;           // of these, first ones
  std::uint64_t batches;         // batches handed to the consumer
  std::uint64_t bytes_gathered;  // payload of the uses handed to the consumer
  std::uint64_t consumer_wait_ns;
  std::uint64_t downstream_ns;  // of an EchoQueue: up to the consumer's last fresh item
  std::uint32_t resident;       // items in the planner's pool, of capacity
  std::uint64_t outstanding_leases;
  std::uint64_t batch_blocks;  // batches that have memory
  std::uint64_t grown_blocks;  // blocks added because all others were in use
};

class EchoStage : protected SlotPool {
 public:
  virtual ~EchoStage() = default;

  using SlotPool::slots;

  // -- Producers: any number of threads, see SlotPool --

  using SlotPool::abort, SlotPool::await_resumed, SlotPool::close, SlotPool::commit, SlotPool::end_pass,
      SlotPool::reserve, SlotPool::try_reserve;

  // -- Consumer: one thread at a time --

  // True once the last iteration is over.
  [[nodiscard]] virtual bool at_end() const noexcept = 0;
  // After an attempt to take something returned kEmpty: returns how many items must be committed before the next one is
  // useful. Returns 0 if there are workers, or if the missing part is not an item.
  [[nodiscard]] virtual std::uint64_t needed() const noexcept = 0;
  // Starts with iteration `epoch` and drops the rest of the last one. Waits for threads that copy a batch. No producer
  // may be inside or have open reservations (std::logic_error), and stop() and close() must not be called meanwhile.
  Outcome begin(std::uint64_t epoch, const Extent& extent) {
    if (forked()) {
      return Outcome::kForked;
    }
    static_cast<void>(begin_at({.epoch = epoch, .extent = extent}));
    start();
    return Outcome::kOk;
  }

  // -- Saving and resuming: the consumer's thread. Producers may be inside if no begin_at() is called. --

  // Ends all waits, parks the workers, and keeps them so until it is undone. Idempotent.
  // NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method): halts the slots, and what uses them
  virtual void set_halted(bool halted) { SlotPool::set_halted(halted); }
  // Stops, drops everything, and returns a replay to `position`, which the caller runs.
  virtual Replay begin_at(PlanPosition position) = 0;
  // Continues where the replay stands, but halted: fill the slots of its items before set_halted(false). Frees all
  // others, released or not.
  virtual void resume(const Replay& replay) = 0;

  // -- Any thread --

  // Stops the stage: every wait ends with kClosed. Idempotent.
  // NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method): likewise
  virtual void stop() { SlotPool::stop(); }
  using SlotPool::forked, SlotPool::stopped;
  [[nodiscard]] virtual EchoStats stats() const {
    const std::uint64_t emitted = emitted_.load_relaxed();
    return {.read = committed(),
            .emitted = emitted,
            .fresh = fresh_.load_relaxed(),
            .batches = emitted,
            .bytes_gathered = 0,
            .consumer_wait_ns = clock_.wait_ns(),
            .downstream_ns = clock_.downstream_ns(),
            .resident = view().resident(),
            .outstanding_leases = 0,
            .batch_blocks = 0,
            .grown_blocks = 0};
  }
  // The log of an adaptive factor, see Plan.
  [[nodiscard]] DecisionLog log() const { return view().log(); }
  [[nodiscard]] bool diverged() const noexcept { return view().diverged(); }

 protected:
  using SlotPool::SlotPool;
  [[nodiscard]] virtual const PlanView& view() const noexcept = 0;
  // After begin_at(), with a plan that was fed nothing: frees all slots and starts. Allocates nothing.
  virtual void start() = 0;
  void count(std::uint64_t uses, std::uint64_t fresh) noexcept {
    emitted_.store_relaxed(emitted_.load_relaxed() + uses);
    fresh_.store_relaxed(fresh_.load_relaxed() + fresh);
  }

  ConsumerClock clock_;  // written by the consumer only, like the next two

 private:
  Atomic<std::uint64_t> emitted_;
  Atomic<std::uint64_t> fresh_;
};

}  // namespace pyecho
