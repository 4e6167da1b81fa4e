// The gather worker's hands: copies planned rows from their slots into a batch.
//
// One Gatherer per worker thread. A single worker copies in the order of the plan, so the use that was planned last is
// copied last and releases the slot. With several workers a slot may feed batches that are filled at the same time; a
// count of outstanding uses per slot then tells who copied the last one, and that worker releases the slot.
//
// variable | written by          | read by  | order        | pairs with | why
// left[s]  | expect (planner)    | spend    | relaxed      | -          | the planner's turn passes to every later copier
// left[s]  | spend [G1]          | spend    | acq_rel RMW  | itself     | all copies out of the slot happen before its
//          |                     |          |              |            | release, whoever makes it
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/batch_pool.hpp"
#include "core/planner.hpp"
#include "core/sequence.hpp"
#include "core/slot_layout.hpp"
#include "core/slot_pool.hpp"

namespace pyecho {

// Knows which copy out of a slot is the last.
class UseCounts {
 public:
  // `workers`: threads that will call spend(). A single one needs no counts.
  UseCounts(std::uint32_t slots, unsigned workers)
      : left_(workers == 1 ? nullptr : std::make_unique<Shared<std::uint32_t>[]>(slots)) {}

  // Under the planner's turn, before any use of the slot is planned.
  void expect(std::uint32_t slot, std::uint32_t uses) noexcept {
    if (left_ != nullptr) {
      left_[slot].store_relaxed(uses);
    }
  }
  // This use has been copied; true if no copy out of its slot is left to be made. Any worker.
  [[nodiscard]] bool spend(const Use& use) noexcept {
    if (left_ == nullptr) {
      return use.last;
    }
    return left_[use.slot].fetch_add_acq_rel(static_cast<std::uint32_t>(-1)) == 1;  // [G1]
  }

 private:
  std::unique_ptr<Shared<std::uint32_t>[]> left_;  // by slot; none with a single worker
};

class Gatherer {
 public:
  // `slots`: storage of slot 0, laid out by `layout`. All arguments outlive the Gatherer.
  Gatherer(const SlotLayout& layout, const std::byte* slots, UseCounts& uses, SlotPool& pool);

  // Begins an empty batch.
  void begin() noexcept {
    planned_ = 0;
    copied_ = 0;
  }
  // Where its rows go; before the first add().
  void into(Batch& batch) noexcept { batch_ = &batch; }
  // Where the next use is to be written, before add() appends it as a row. Requires planned() < layout.rows().
  [[nodiscard]] Use& next() noexcept { return plan_[planned_]; }
  void add() noexcept { ++planned_; }
  [[nodiscard]] std::uint32_t planned() const noexcept { return planned_; }
  // Copies rows that were added and not yet copied, until `max_bytes` have been (one row at least), and releases slots
  // whose uses are spent; sleeping producers are woken. False if there was nothing to copy.
  bool copy(std::size_t max_bytes);

 private:
  void copy_row(const Use& use, std::uint32_t row) const noexcept;
  void prefetch(std::uint32_t row) const noexcept;
  void spend(std::uint32_t begin, std::uint32_t end);

  const SlotLayout& layout_;
  const std::byte* slots_;
  UseCounts& uses_;
  SlotPool& pool_;
  Batch* batch_ = nullptr;
  std::vector<Use> plan_;      // sized for a whole batch once
  std::uint32_t planned_ = 0;  // rows added
  std::uint32_t copied_ = 0;   // rows copied
};

}  // namespace pyecho
