// One batch in the making: rows are planned into it and copied from their slots.
//
// Belongs to one thread at a time. A BatchBuilder that is handed from one thread to another takes along what is planned and
// how much of it is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_reclaimer.hpp"
#include "core/plan/planner.hpp"

namespace pyecho {

class BatchBuilder {
 public:
  // `slots`: storage of slot 0, laid out by `layout`. `stream`: copy past the caches (stream_copy.hpp). `layout`, the
  // slots and `spent` outlive the BatchBuilder.
  BatchBuilder(const SlotLayout& layout, const std::byte* slots, SlotReclaimer& spent, bool stream);

  // Begins batch `number`, whose rows go to `batch`.
  void begin(std::uint64_t number, Batch& batch) noexcept {
    number_ = number;
    batch_ = &batch;
  }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  // Null before begin() and after end() or drop().
  [[nodiscard]] Batch* batch() const noexcept { return batch_; }
  // Where the next uses are to be written, before add() appends the first `rows` of them.
  [[nodiscard]] std::span<Use> rest() noexcept { return std::span(plan_).subspan(planned_); }
  void add(std::uint32_t rows) noexcept { planned_ += rows; }
  [[nodiscard]] std::uint32_t planned() const noexcept { return planned_; }
  // Copies rows that were added and not yet copied, until `max_bytes` have been (one row at least); slots whose uses are
  // spent are given back. False if there was nothing to copy.
  bool copy(std::size_t max_bytes);
  // Copies all that is left, and parts with the batch: it is whole.
  Batch* end();
  // Parts with the batch as it is: it will not be handed out, and no slot will be asked for any more.
  Batch* drop() noexcept;

 private:
  void copy_row(const Use& use, std::uint32_t row) const noexcept;
  void prefetch(std::uint32_t row) const noexcept;
  void copy_to(std::uint32_t end);

  const SlotLayout* layout_;
  const std::byte* slots_;
  SlotReclaimer* spent_;
  bool stream_;
  std::uint64_t number_ = 0;
  Batch* batch_ = nullptr;
  std::vector<Use> plan_;      // sized for a whole batch once
  std::uint32_t planned_ = 0;  // rows added
  std::uint32_t copied_ = 0;   // rows copied
  std::vector<std::uint32_t>
      spends_;  // slots whose last use is in the group that is being copied, and room for as many
};

}  // namespace pyecho
