// Batch echoing: the stage that hands out slot numbers in echoed, shuffled order. Whatever the slots stand for stays with
// the caller and is never copied.
//
//     producers ──▶ SlotPool ──▶ Planner ──▶ consumer
//
// There are no threads in here: the consumer plans as it goes, and a repeat is a few arithmetic operations.
//
//     EchoQueue queue(config);
//     Reservation r;                                    // any thread(s)
//     if (queue.reserve(r, kNever) == Outcome::kOk) { item[r.slot] = ...; queue.commit(r); }
//     queue.close();
//     Use use;                                          // one thread at a time
//     while (queue.next(use, kNever) == Outcome::kOk) { ... item[use.slot] ...; if (use.last) queue.release(use.slot); }
#pragma once

#include <cstdint>

#include "core/memory/slot_pool.hpp"
#include "core/plan/planner.hpp"
#include "core/stage/consumer_clock.hpp"
#include "core/sync/fork_guard.hpp"

namespace pyecho {

struct EchoQueueConfig {
  std::uint32_t capacity = 1;  // >= 1; 1: no shuffling
  double factor = 2.0;         // >= 1
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint32_t prefetch = 2;  // >= 1: items taken from producers ahead of the pool
};

struct EchoQueueStats {
  std::uint64_t fresh;    // items committed
  std::uint64_t emitted;  // uses handed to the consumer
  std::uint64_t consumer_wait_ns;
  std::uint64_t downstream_ns;  // up to the consumer's last fresh item
  std::uint32_t resident;
};

class EchoQueue {
 public:
  explicit EchoQueue(const EchoQueueConfig& config);

  // Slot numbers are below this.
  [[nodiscard]] std::uint32_t slots() const noexcept { return pool_.slots(); }

  // -- Producers: any number of threads (see SlotPool) --

  // kOk, kClosed, kTimeout, kForked.
  Outcome reserve(Reservation& reservation, Deadline deadline);
  // kOk, kFull, kClosed, kForked; never blocks.
  Outcome try_reserve(Reservation& reservation);
  void commit(Reservation reservation) {
    if (!fork_guard_.forked()) {
      pool_.commit(reservation);
    }
  }
  void close() {
    if (!fork_guard_.forked()) {
      pool_.close();
    }
  }

  // -- Consumer: one thread at a time --

  // The next use: kOk, kEmpty, kEnd after the last, kClosed after stop(), kForked. Never blocks.
  Outcome try_next(Use& use);
  // As try_next(), but waits: kTimeout instead of kEmpty.
  Outcome next(Use& use, Deadline deadline);

  // -- Any thread --

  // The caller is done with the slot whose last use it was given.
  void release(std::uint32_t slot) {
    pool_.release(slot);
    pool_.announce_released(1);
  }
  // Abandons everything: every wait ends with kClosed. Idempotent.
  void stop() {
    if (!fork_guard_.forked()) {
      pool_.stop();
    }
  }
  [[nodiscard]] bool stopped() const noexcept { return pool_.stopped(); }
  [[nodiscard]] EchoQueueStats stats() const;

 private:
  Outcome admit();

  const ForkGuard fork_guard_;
  SlotPool pool_;
  Planner planner_;      // the consumer's, with the next two
  ConsumerClock clock_;  // read only when a fresh item is due: a repeat costs no clock
  Atomic<std::uint64_t> emitted_;
  Atomic<std::uint32_t> resident_;  // planner_.resident(), for stats()
};

}  // namespace pyecho
