// Makes the batches of example echoing, one step at a time. Never waits; the drivers wait (driver.hpp).
//
// A step takes the slots that producers have filled, feeds them to the plan, and plans rows of the open batch, until the
// batch is complete or an item or a block is missing. While an item is missing, the rows planned so far are copied. That
// frees slots as early as possible and prevents a deadlock of a producer that waits for a slot and a batch that waits for
// an item.
//
// copy(): any number of threads, each with its own batch. Everything else: one thread at a time, ensured by the driver.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_pool.hpp"
#include "core/memory/slot_reclaimer.hpp"
#include "core/plan/batch_plan.hpp"
#include "core/stage/batch_builder.hpp"
#include "core/sync/atomic.hpp"

namespace pyecho {

class Executor {
 public:
  // All arguments outlive the executor. `batch_rows`: rows of a whole batch.
  Executor(SlotPool& slots, BatchPool& batches, SlotReclaimer& reclaimer, const BatchBuilder& builder,
           const PlanConfig& plan, std::uint32_t batch_rows)
      : slots_(slots), batches_(batches), reclaimer_(reclaimer), builder_(builder), plan_(plan), rows_(batch_rows) {}

  // Starts with iteration `epoch`. No other thread may be inside.
  void begin(std::uint64_t epoch, std::uint64_t items);

  // kOk: `batch` is planned, and its rows must be copied. kEnd: the iteration is over; the next call starts the next one.
  // kEmpty: needed() more items are missing. kExhausted: a block is missing. kClosed: finished, or stopped.
  Outcome plan(Batch*& batch);
  // Copies the rest of a batch that plan() returned.
  void copy(Batch& batch) const {
    builder_.finish(batch);
    slots_.announce_released();  // producers may sleep for these slots, and this thread may leave the stage now
  }

  // True once every iteration has ended and no input can follow.
  [[nodiscard]] bool finished() const noexcept { return finished_.load_relaxed(); }
  // After plan() returned kEmpty: returns how many items must be committed before the open batch can be complete, at most
  // as many as there are slots for.
  [[nodiscard]] std::uint64_t needed() const noexcept {
    const std::uint32_t missing = rows_ - (open_ == nullptr ? 0 : open_->rows);
    return std::min<std::uint64_t>(plan_.min_items(missing), slots_.slots() - plan_.resident());
  }
  // Returns the number of batches planned so far, in all iterations, which is also the number of the next one.
  [[nodiscard]] std::uint64_t planned() const noexcept { return planned_; }
  // Returns a recent number of items in the pool. Any thread.
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_.load_relaxed(); }

 private:
  Outcome draw();

  SlotPool& slots_;
  BatchPool& batches_;
  SlotReclaimer& reclaimer_;
  const BatchBuilder& builder_;
  BatchPlan plan_;
  const std::uint32_t rows_;
  Batch* open_ = nullptr;  // the batch that is being planned
  std::uint64_t planned_ = 0;
  Atomic<bool> finished_;
  Atomic<std::uint32_t> resident_;  // plan_.resident(), for stats()
};

}  // namespace pyecho
