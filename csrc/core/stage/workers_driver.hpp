// The driver with native threads. Each plans a batch under the turn, a mutex, and copies it without the turn. So several
// batches are copied at the same time while planning stays sequential. See driver.hpp.
//
// The thread with the turn keeps it while it waits for an item or a block, so only one thread waits for input, and the
// others wait for the turn. A consumer that finds no batch ready takes the turn if it is free and makes a batch itself,
// because waking a thread on another processor can take longer than copying a batch.
//
// Batches and ends of iterations are numbered in the order of planning and leave in that order.
//
// variable      | written by          | read by          | order            | pairs with | why
// turn_         | -                   | -                | mutex            | -          | guards the executor and two counters
// in_flight_[i] | maker before        | consumer after   | by ready_        | P1 -> T1   | the ring publishes the pointer
//               | ready_.publish      | try_take         |                  |            |
// ready_count_  | maker               | consumer         | EventCount       | E1 <-> E4  | wakes the consumer
// taken_        | consumer            | makers           | EventCount       | E1 -> E5,  | wakes a worker; orders the consumer's
//               |                     |                  |                  | E1 <-> E4  | last look at a cell before its next filling
// parked_       | workers             | park()           | EventCount       | E1 <-> E4  | the caller owns the executor
// resumed_      | resume()            | workers          | EventCount       | E1 <-> E4  | the workers own it again
// ending_       | the destructor      | workers          | release, acquire | -          | followed by resume()
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_pool.hpp"
#include "core/stage/driver.hpp"
#include "core/stage/executor.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/reorder_ring.hpp"

namespace pyecho {

class WorkersDriver final : public Driver {
 public:
  // Starts `threads` workers, parked. `depth`: maximum of batches planned and not yet taken. `consumer_helps`: the
  // consumer makes batches while it waits. `wake_items`: committed items that wake a worker. The other arguments outlive
  // the driver. Throws std::bad_alloc, std::system_error.
  WorkersDriver(Executor& executor, SlotPool& slots, BatchPool& batches, std::uint32_t threads, std::uint32_t depth,
                bool consumer_helps, std::uint64_t wake_items);
  // Returns the bytes that a driver of this depth allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t depth) noexcept {
    return RingGeometry(depth).cells() * (sizeof(std::uint64_t) + sizeof(Batch*));
  }
  // Joins the workers. The slots must have been stopped.
  ~WorkersDriver() override;
  WorkersDriver(const WorkersDriver&) = delete;
  WorkersDriver& operator=(const WorkersDriver&) = delete;

  Outcome try_acquire(Batch*& batch) override;
  Outcome acquire(Batch*& batch, Deadline deadline) override;
  [[nodiscard]] bool at_end() const override { return at_end_.load_relaxed(); }
  [[nodiscard]] std::uint64_t needed() const override { return 0; }
  void alert() override;
  void park() override;
  void resume() override;
  void abandon_threads() noexcept override;

 private:
  void work();
  Outcome make(std::unique_lock<std::mutex>& turn);
  void await(Outcome lacking);
  bool help();
  void join();

  Executor& executor_;
  SlotPool& slots_;
  BatchPool& batches_;
  const std::uint32_t depth_;
  const bool consumer_helps_;
  const std::uint64_t wake_items_;

  std::mutex turn_;
  std::uint64_t next_number_ = 0;   // of a batch or an end; guarded by turn_, like the next member
  std::uint64_t returns_seen_ = 0;  // batches_.returns() before the last attempt

  ReorderRing<> ready_;            // makers -> consumer, by number
  std::vector<Batch*> in_flight_;  // by cell of ready_; null for the end of an iteration
  EventCount ready_count_;         // advanced by makers
  EventCount taken_;               // advanced by the consumer
  Atomic<bool> at_end_;            // written by the consumer only: true once it has taken the last end
  EventCount parked_;              // advanced by workers
  EventCount resumed_;             // advanced by resume()
  Atomic<std::uint32_t> ending_;
  std::vector<std::thread> workers_;  // last, because they use all of the above
};

}  // namespace pyecho
