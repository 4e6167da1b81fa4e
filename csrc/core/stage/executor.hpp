// Makes the batches of example echoing, one step at a time. Never waits: waiting is the drivers' (driver.hpp).
//
// A step takes the slots that producers have filled, feeds them to the plan, and plans rows of the open batch, until the
// batch is complete or something is missing. While an item is missing, the rows planned so far are copied: slots come
// back as early as possible, and no producer that waits for a slot can wait for a batch that waits for an item.
//
// plan() and everything else but copy(): one thread at a time, which the driver sees to. copy(): any number of threads,
// each with its own batch.
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

  // Starts with iteration `epoch`. Nobody else inside.
  void begin(std::uint64_t epoch, std::uint64_t items);

  // kOk: `batch` is planned, and its rows have to be copied. kEnd: the iteration is over; the next call goes on with the
  // next one. kEmpty: needed() items more are missing. kExhausted: a block is missing. kClosed: finished, or stopped.
  Outcome plan(Batch*& batch);
  // Copies what is left of a batch that plan() has planned.
  void copy(Batch& batch) const {
    builder_.finish(batch);
    slots_.announce_released();  // nobody else may do so before producers sleep for these slots
  }

  // Every iteration was ended, and no input can follow.
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  // So many items have to be committed before the open batch can be complete, or all that there are slots for. After
  // kEmpty.
  [[nodiscard]] std::uint64_t needed() const noexcept {
    const std::uint32_t missing = rows_ - (open_ == nullptr ? 0 : open_->rows);
    return std::min<std::uint64_t>(plan_.min_items(missing), slots_.slots() - plan_.resident());
  }
  // Batches planned so far, in all iterations; the number of the next one.
  [[nodiscard]] std::uint64_t planned() const noexcept { return planned_; }
  // Items in the pool, a moment ago. Any thread.
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_.load_relaxed(); }

 private:
  bool feed();
  Outcome draw();

  SlotPool& slots_;
  BatchPool& batches_;
  SlotReclaimer& reclaimer_;
  const BatchBuilder& builder_;
  BatchPlan plan_;
  const std::uint32_t rows_;
  Batch* open_ = nullptr;  // the batch that is being planned
  std::uint64_t planned_ = 0;
  bool finished_ = false;
  Atomic<std::uint32_t> resident_;  // plan_.resident(), for stats()
};

}  // namespace pyecho
