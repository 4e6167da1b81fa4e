#include "core/memory/slot_layout.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "core/memory/sizes.hpp"

namespace pyecho {
namespace {

std::size_t align_up(std::size_t bytes, std::size_t alignment) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

SlotLayout::SlotLayout(const std::vector<LeafFormat>& leaves, std::uint32_t rows, bool with_info, bool whole)
    : rows_(rows), with_info_(with_info) {
  assert(rows >= 1);
  const auto checked = [rows](std::size_t bytes) {
    if (bytes >= kTooLarge) {
      throw std::length_error("a batch of " + std::to_string(rows) + " such examples does not fit the address space");
    }
    return bytes;
  };
  const auto add_region = [&](std::size_t size_bytes) {
    const std::size_t offset = batch_bytes_;
    batch_bytes_ = checked(plus(offset, align_up(checked(size_bytes), kRegionAlignment)));
    return offset;
  };
  for (const LeafFormat& leaf : leaves) {
    const std::size_t bytes = leaf.slot_bytes;
    slot_bytes_ = align_up(slot_bytes_, std::min(kLeafAlignment, std::max<std::size_t>(bytes & (~bytes + 1), 1)));
    leaves_.push_back({.size_bytes = bytes,
                       .slot_offset = slot_bytes_,
                       .row_bytes = leaf.row_bytes,
                       .batch_offset = add_region(times(leaf.row_bytes, rows)),
                       .variable = leaf.variable,
                       .ragged = leaf.ragged,
                       .pad = leaf.pad});
    // The other sums of one example are at most this one.
    slot_bytes_ = checked(plus(slot_bytes_, bytes));
    example_bytes_ += bytes;
    row_bytes_ += leaf.row_bytes;
    variable_bytes_ = checked(plus(variable_bytes_, leaf.variable.max_bytes));
    if (leaf.ragged) {
      ragged_bytes_ = checked(plus(ragged_bytes_, times(leaf.pad.empty() ? 1 : 2, leaf.variable.max_bytes)));
    }
  }
  slot_bytes_ = std::max(align_up(slot_bytes_, kSlotAlignment), kSlotAlignment);
  slot_distance_ = slot_bytes_;
  if (whole && variable_bytes_ > 0) {
    for (Leaf& leaf : leaves_) {
      leaf.elements_offset = leaf.variable.axes > 0 ? slot_distance_ : 0;
      slot_distance_ = checked(plus(slot_distance_, align_up(leaf.variable.max_bytes, kSlotAlignment)));
    }
    variable_bytes_ = slot_distance_ - slot_bytes_;
  }
  if (with_info_) {
    source_index_offset_ = add_region(sizeof(std::int64_t) * rows);
    use_offset_ = add_region(sizeof(std::int32_t) * rows);
  }
  batch_bytes_ = std::max<std::size_t>(batch_bytes_, 1);
}

}  // namespace pyecho
