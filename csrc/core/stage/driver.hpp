// Decides which threads step the executor, and which of them sleep for what.
//
// - ConsumerDriver: the consumer plans and copies each batch when it asks for it. No thread of its own. With a consumer
//   that also reads the source (try_acquire() answers kEmpty: put items, ask again) the stage is *inline*; with a
//   producer thread it is *consumer-led*.
// - WorkersDriver: native threads make batches ahead of the consumer.
//
// The output is the executor's, so it is the same for all drivers.
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

  // The next batch. kOk; kEnd at the end of an iteration, the next call goes on with the next one, if there can be one;
  // kEmpty if it would have to wait; kExhausted if only the end of a lease can help. One thread at a time.
  virtual Outcome try_acquire(Batch*& batch) = 0;
  // The last iteration is over; try_acquire() goes on answering kEnd.
  [[nodiscard]] virtual bool at_end() const = 0;
  // As try_acquire(), but waits: kTimeout instead of kEmpty; kClosed after a stop.
  virtual Outcome acquire(Batch*& batch, Deadline deadline) = 0;

  // How many items have to be committed before another try_acquire() makes sense, after it answered kEmpty; 0 if items
  // are not what it waits for.
  [[nodiscard]] virtual std::uint64_t needed() const = 0;

  // Wakes the threads of this driver and a waiting consumer, after the slots were stopped. Any thread.
  virtual void alert() = 0;
  // Parks the threads of this driver, after the slots were stopped, and gives back batches that were made ahead. From
  // here to resume() the executor is the caller's.
  virtual void park() = 0;
  virtual void resume() = 0;
  // In a forked child: the threads stayed in the parent.
  virtual void abandon_threads() noexcept = 0;
};

}  // namespace pyecho
