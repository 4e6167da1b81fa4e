// Decides which threads step the executor, and how each of them waits.
//
// - ConsumerDriver: the consumer plans and copies each batch when it requests it. No thread of its own. If the consumer
//   also reads the source (it puts items when try_acquire() returns kEmpty, then tries again), the stage is *inline*.
//   With a producer thread it is *consumer-led*.
// - WorkersDriver: native threads make batches ahead of the consumer.
//
// The executor determines the output, so it is the same for all drivers.
#pragma once

#include <cstdint>

#include "core/memory/batch_pool.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

class Driver {
 public:
  Driver() = default;
  virtual ~Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Takes the next batch. kOk; kEnd at the end of an iteration, after which the next call starts the next iteration, if
  // any; kEmpty if it would have to wait; kExhausted if no batch can be made until a lease ends. One thread at a time.
  virtual Outcome try_acquire(Batch*& batch) = 0;
  // True once the last iteration is over. From then on, try_acquire() returns kEnd.
  [[nodiscard]] virtual bool at_end() const = 0;
  // Same as try_acquire(), but waits: kTimeout instead of kEmpty; kClosed after a stop.
  virtual Outcome acquire(Batch*& batch, Deadline deadline) = 0;

  // After try_acquire() returned kEmpty: returns how many items must be committed before the next attempt is useful, or 0
  // if it does not wait for items.
  [[nodiscard]] virtual std::uint64_t needed() const = 0;

  // Wakes the threads of this driver and a waiting consumer, after the slots were stopped. Any thread.
  virtual void alert() = 0;
  // Parks the threads of this driver, after the slots were stopped, and gives back batches made ahead. Blocks until all
  // threads are parked. The caller then owns the executor until resume().
  virtual void park() = 0;
  virtual void resume() = 0;
  // Abandons the threads without joining them. For a forked child, because the threads stayed in the parent.
  virtual void abandon_threads() noexcept = 0;
};

}  // namespace pyecho
