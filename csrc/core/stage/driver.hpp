// Decides which threads plan and copy, and how each of them waits. The plan determines the output, so it is the same for
// any number of threads.
//
// Without workers the consumer plans and copies each batch when it requests it. If it also reads the source (it puts
// items when try_acquire() returns kEmpty, then tries again), the stage is *inline*. With a producer thread it is
// *consumer-led*.
//
// Workers are native threads that make batches ahead of the consumer. A thread that has the turn plans batches into the
// ring, as many as there are threads that copy; with an adaptive factor, whose batches are decided as late as possible,
// one. Copying needs no turn. So planning stays sequential, several batches are copied at the same time, and the plan
// changes processors once for several of them. The thread with the turn keeps it while it waits for an item or a block,
// so only one thread waits for input, and the others wait for the turn. A consumer that finds no batch ready copies the
// next one that is planned, or takes the turn if it is free, because waking a thread on another processor can take longer
// than copying a batch.
//
// Ends of iterations are numbered as batches and leave in the same order. If the system has no memory to copy a batch, it
// waits in its place, and the consumer copies the rest.
//
// Every wait of a stage, and who ends it. Each also ends after stop(), and but for the last two while halted.
//
// thread sleeps      | for                           | announced by                     | also ends when
// producer           | released_ [E4]: seen + 1      | a thread that released, in       | closed
//   without a slot   |                               | groups, and before it waits      |
// planner            | committed_ [E4]: what the     | producers                        | closed, a pass ended, a producer waits, the
//   without items    | open batch needs              |                                  | consumer waits for a batch of repeats
// planner            | returns_ [E4]:                | the end of a lease               | (with uploads) the end of a copy
//   without a block  | returns_seen_ + 1             |                                  |
// planner ahead of   | taken [E4]: a quarter of      | the consumer                     |
//   the consumer     | the ring, 1 at least          |                                  |
// worker without     | turn_                         | the thread that has it           | the holder's wait ends
//   the turn         |                               |                                  |
// consumer without   | ready [E4]:                   | threads that copy                | exhausted, at the end of a lease
//   a batch          | max(seen, taken) + 1          |                                  |
// begin(), a halt    | parked_ [E4]                  | workers that leave               |
// parked worker      | resumed_ [E4]                 | the end of a halt, ~Driver       |
//
// The turn is taken by workers, by a consumer that helps, and by nobody else; a parked worker does not have it.
//
// variable | written by        | read by         | order            | pairs with | why
// turn_    | -                 | -               | mutex            | -          | guards the planner and three variables
// ring_    | see BatchRing     |                 |                  |            |
// parked_  | workers           | begin(), halts  | EventCount       | E1 <-> E4  | the caller owns planner and ring
// resumed_ | ends of halts     | workers         | EventCount       | E1 <-> E4  | the workers own them again
// awaits_  | the consumer      | planner         | release, acquire | -          | odd while the consumer waits, a higher even
//          |                   |                 |                  |            | number after each batch it took; followed by
//          |                   |                 |                  |            | an alert of the planner
// at_end_  | the consumer      | any             | relaxed          | -          | a fact about the last batch it took
// ending_  | ~Driver           | workers         | release, acquire | -          | followed by resumed_
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/stage/batch_pool.hpp"
#include "core/stage/batch_ring.hpp"
#include "core/stage/feed.hpp"
#include "core/stage/gather.hpp"
#include "core/stage/planner.hpp"
#include "core/stage/slot_ring.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/turn.hpp"

namespace pyecho {

struct DriverLimits {
  std::uint32_t threads;     // workers
  std::uint32_t depth;       // maximum of batches planned and not yet taken
  bool consumer_helps;       // the consumer makes batches while it waits for workers
  std::uint64_t wake_items;  // committed items that wake the thread that plans
};

class Driver {
 public:
  // Makes workers, parked until the end of a halt. The other arguments outlive the driver. Throws std::bad_alloc,
  // std::system_error.
  Driver(SlotRing& slots, Feed& feed, Planner& planner, Gather& gather, BatchPool& batches, DriverLimits limits);
  // Joins the workers. The slots must have been stopped. In a forked child, abandons the threads, which stayed in the
  // parent.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Takes the next batch. kOk; kEnd at the end of an iteration, after which the next call starts the next iteration, if
  // any; kEmpty if it would have to wait; kExhausted if no batch can be made until a lease ends; kClosed after a stop.
  // Throws std::bad_alloc if the system has no memory to copy it; the next call tries again. One thread at a time.
  Outcome try_acquire(Batch*& batch);
  // Same as try_acquire(), but waits: kTimeout instead of kEmpty.
  Outcome acquire(Batch*& batch, Deadline deadline);
  // True once the last iteration is over. From then on, try_acquire() returns kEnd.
  [[nodiscard]] bool at_end() const noexcept { return at_end_.load_relaxed(); }
  // After try_acquire() returned kEmpty: returns how many items must be committed before the next attempt is useful, or
  // 0 if it does not wait for items.
  [[nodiscard]] std::uint64_t needed() const noexcept {
    return led_by_consumer() && lacking_ != Outcome::kExhausted ? planner_.needed() : 0;
  }

  // Drops everything, after the slots were stopped, and returns a replay of the plan to `position`. Blocks until the
  // workers are parked.
  Replay begin(PlanPosition position);
  // Continues where the replay has come to, halted. The slots are halted as well.
  void resume(const Replay& replay);
  // Wakes the workers and a waiting consumer, after the slots were stopped or halted. Any thread.
  void alert();

  // Halts the slots, and blocks until the workers are parked; or undoes that. Idempotent. While halted, nothing changes
  // but what producers commit.
  void set_halted(bool halted);
  // While halted: adds the batches that are made, or being made, and not taken to `batches`, and returns the plan,
  // which has been fed everything that is committed. Throws std::bad_alloc, after which it can be called again.
  const Plan& settle(std::vector<const Batch*>& batches);

 private:
  using Ring = BatchRing<Batch>;

  [[nodiscard]] bool led_by_consumer() const noexcept { return workers_.empty(); }
  Outcome lead();
  Outcome take(Batch*& batch);
  void work();
  bool step();
  bool gather_next();
  Outcome plan();
  Outcome await(Outcome lacking, Deadline deadline);
  bool take_turn_soon(std::unique_lock<Turn>& turn);
  bool help();
  void set_awaited(bool awaited);
  [[nodiscard]] bool is_end(const Batch* batch) const noexcept { return batch == &ends_[0] || batch == &ends_[1]; }
  void join();
  void park();

  SlotRing& slots_;
  Feed& feed_;
  Planner& planner_;
  Gather& gather_;
  BatchPool& batches_;
  const DriverLimits limits_;
  const std::uint32_t at_once_;  // batches planned in a turn
  std::array<Batch, 2> ends_;    // stand in the ring for the end of an iteration, and for the last end
  Ring ring_;

  Turn turn_;
  std::uint64_t returns_seen_ = 0;  // guarded by turn_, like the next two: batches_.returns() before the last attempt
  std::uint64_t awaits_seen_ = 0;   // awaits_ likewise
  bool lags_ = false;               // the source lags behind the consumer

  alignas(kCacheLineBytes) Atomic<std::uint64_t> awaits_;  // set by the consumer only, like the next two
  Atomic<bool> at_end_;                                    // it has taken the last end
  Outcome lacking_ = Outcome::kEmpty;                      // what plan() lacked, where the consumer leads
  EventCount parked_;                                      // advanced by workers
  EventCount resumed_;                                     // advanced by set_halted()
  Atomic<std::uint32_t> ending_;
  std::vector<std::thread> workers_;  // last, because they use all of the above
};

}  // namespace pyecho
