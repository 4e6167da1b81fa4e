// Decides which threads step the executor, and how each of them waits. The executor determines the output, so it is the
// same for any number of threads.
//
// Without workers the consumer plans and copies each batch when it requests it. If it also reads the source (it puts
// items when try_acquire() returns kEmpty, then tries again), the stage is *inline*. With a producer thread it is
// *consumer-led*.
//
// Workers are native threads that make batches ahead of the consumer. Each plans a batch under the turn, a mutex, and
// copies it without the turn. So several batches are copied at the same time while planning stays sequential. The
// thread with the turn keeps it while it waits for an item or a block, so only one thread waits for input, and the
// others wait for the turn. A consumer that finds no batch ready takes the turn if it is free and makes a batch itself,
// because waking a thread on another processor can take longer than copying a batch.
//
// Batches and ends of iterations are numbered in the order of planning and leave in that order. If the system has no
// memory to copy a batch, it waits in its place, and the consumer copies the rest.
//
// variable      | written by          | read by          | order            | pairs with | why
// turn_         | -                   | -                | mutex            | -          | guards the executor and two counters
// ready_[i]     | maker [D1]          | consumer [D2]    | release, acquire | D1 -> D2   | the batch is whole, or as far as memory went
// ready_[i]     | consumer            | -                | relaxed          | by taken_  | empty before its next filling
// ready_count_  | maker               | consumer         | EventCount       | E1 <-> E4  | wakes the consumer
// taken_        | consumer            | makers           | EventCount       | E1 -> E5,  | wakes a worker; orders the consumer's
//               |                     |                  |                  | E1 <-> E4  | last use of ready_[i] before its next filling
// parked_       | workers             | begin(), halts   | EventCount       | E1 <-> E4  | the caller owns the executor
// resumed_      | begin(), halts      | workers          | EventCount       | E1 <-> E4  | the workers own it again
// awaits        | consumer            | makers           | see SlotPool     | -          | whether a batch may be made of repeats
// ending_       | the destructor      | workers          | release, acquire | -          | followed by resumed_
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/stage/batch_pool.hpp"
#include "core/stage/executor.hpp"
#include "core/stage/slot_pool.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"

namespace pyecho {

struct DriverLimits {
  std::uint32_t threads;     // workers
  std::uint32_t depth;       // maximum of batches planned and not yet taken
  bool consumer_helps;       // the consumer makes batches while it waits for workers
  std::uint64_t wake_items;  // committed items that wake the thread that plans
};

class Driver {
 public:
  // Makes workers, parked until begin(). The other arguments outlive the driver. Throws std::bad_alloc,
  // std::system_error.
  Driver(Executor& executor, SlotPool& slots, BatchPool& batches, DriverLimits limits);
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
    return led_by_consumer() && lacking_ != Outcome::kExhausted ? executor_.needed() : 0;
  }

  // Drops everything, after the slots were stopped, and returns a replay of the plan to `position`. Blocks until the
  // workers are parked.
  Replay begin(PlanPosition position);
  // Starts a plan that was fed nothing. Throws as SlotPool::reset() does.
  void start();
  // Same, but continues where the replay has come to, halted.
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
  [[nodiscard]] bool led_by_consumer() const noexcept { return workers_.empty(); }
  Outcome lead(Batch*& batch);
  Outcome take(Batch*& batch);
  void work();
  Outcome make(std::unique_lock<std::mutex>& turn);
  Outcome await(Outcome lacking, Deadline deadline);
  bool help();
  [[nodiscard]] bool is_end(const Batch* batch) const noexcept { return batch == &ends_[0] || batch == &ends_[1]; }
  void finish(Batch& batch);
  template <class Visit>
  void each_untaken(const Visit& visit);
  void join();
  void park();
  [[nodiscard]] bool quiet() const noexcept { return slots_.stopped() || slots_.halted(); }

  Executor& executor_;
  SlotPool& slots_;
  BatchPool& batches_;
  const DriverLimits limits_;

  std::mutex turn_;
  std::uint64_t next_number_ = 0;   // of a batch or an end; guarded by turn_, like the next three
  std::uint64_t returns_seen_ = 0;  // batches_.returns() before the last attempt
  std::uint64_t awaits_seen_ = 0;   // slots_.awaits() likewise
  bool lags_ = false;               // the last batch was made of repeats, because the source lags behind the consumer

  std::vector<Atomic<Batch*>> ready_;  // by number modulo depth; null: not ready
  std::array<Batch, 2> ends_;          // stand in ready_ for the end of an iteration, and for the last end
  EventCount ready_count_;             // advanced by makers
  EventCount taken_;                   // advanced by the consumer
  Atomic<bool> at_end_;                // set by the consumer only, once it has taken the last end
  Outcome lacking_ = Outcome::kEmpty;  // consumer only: what lead() lacked
  Batch* led_ = nullptr;               // consumer only: what lead() has planned, and not yet copied
  EventCount parked_;                  // advanced by workers
  EventCount resumed_;                 // advanced by begin() and set_halted()
  Atomic<std::uint32_t> ending_;
  std::vector<std::thread> workers_;  // last, because they use all of the above
};

}  // namespace pyecho
