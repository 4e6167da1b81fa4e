// Makes the batches of example echoing, one step at a time. Never waits; the driver waits (driver.hpp).
//
// A step takes the slots that producers have filled, feeds them to the plan, and plans rows of the open batch, until the
// batch is complete or an item or a block is missing. While an item is missing, the rows planned so far are copied. That
// frees slots as early as possible and prevents a deadlock of a producer that waits for a slot and a batch that waits for
// an item.
//
// copy(), copy_planned(): any number of threads, each with its own batch; a batch may change threads between two calls. Everything else:
// one thread at a time, ensured by the driver.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_pool.hpp"
#include "core/memory/slot_reclaimer.hpp"
#include "core/plan/batch_plan.hpp"

namespace pyecho {

class Executor {
 public:
  // `slot_data`: storage of slot 0, in the format of batches.layout(). `depth`: maximum of batches that are planned and not
  // yet copied. `stream`: copy past the caches (stream_copy.hpp). The other arguments and the storage outlive the executor.
  Executor(SlotPool& slots, BatchPool& batches, const PlanConfig& plan, const std::byte* slot_data, std::uint32_t depth,
           bool stream)
      : slots_(slots),
        batches_(batches),
        layout_(batches.layout()),
        slot_data_(slot_data),
        stream_(stream),
        reclaimer_(slots, depth, layout_.rows()),
        plan_(plan) {}

  // Starts with iteration `epoch`. No other thread may be inside.
  void begin(std::uint64_t epoch, std::uint64_t items);

  // kOk: `batch` is planned, and its rows must be copied. kEnd: the iteration is over; the next call starts the next one.
  // kEmpty: needed() more items are missing. kExhausted: a block is missing. kClosed: finished, or stopped.
  Outcome plan(Batch*& batch);
  // Copies the rest of a batch that plan() returned, and frees each slot whose last use was copied.
  void copy(Batch& batch);
  // Copies the rows of a batch that are planned and not yet copied. Returns false if there are none.
  bool copy_planned(Batch& batch);

  // True once every iteration has ended and no input can follow. Any thread.
  [[nodiscard]] bool finished() const noexcept { return plan_.finished(); }
  // After plan() returned kEmpty: returns how many items must be committed before the open batch can be complete, at most
  // as many as there are slots for.
  [[nodiscard]] std::uint64_t needed() const noexcept {
    const std::uint32_t missing = layout_.rows() - (open_ == nullptr ? 0 : open_->rows);
    return std::min<std::uint64_t>(plan_.min_items(missing), slots_.slots() - plan_.resident());
  }
  // Returns a recent number of items in the pool. Any thread.
  [[nodiscard]] std::uint32_t resident() const noexcept { return plan_.resident(); }

 private:
  Outcome draw();
  void copy_row(const Use& use, std::byte* block, std::uint32_t row) const noexcept;
  void prefetch(std::uint32_t slot) const noexcept;

  SlotPool& slots_;
  BatchPool& batches_;
  const SlotLayout& layout_;
  const std::byte* const slot_data_;
  const bool stream_;
  SlotReclaimer reclaimer_;
  BatchPlan plan_;
  Batch* open_ = nullptr;      // the batch that is being planned
  std::uint64_t planned_ = 0;  // batches planned so far, in all iterations, and the number of the next one
};

}  // namespace pyecho
