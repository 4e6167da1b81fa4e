#include "core/memory/slot_layout.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <stdexcept>

namespace pyecho {
namespace {

constexpr std::size_t kMaxBytes = std::numeric_limits<std::size_t>::max() / 4;

std::size_t align_up(std::size_t bytes, std::size_t alignment) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

// The sum of two numbers that it returned does not overflow.
std::size_t checked_multiply(std::size_t bytes, std::size_t count) {
  if (bytes != 0 && count > kMaxBytes / bytes) {
    throw std::length_error("a batch of " + std::to_string(count) + " rows of " + std::to_string(bytes) +
                            " bytes does not fit the address space");
  }
  return bytes * count;
}

}  // namespace

SlotLayout::SlotLayout(const std::vector<LeafFormat>& leaves, std::uint32_t rows, bool with_info)
    : rows_(rows), with_info_(with_info) {
  assert(rows >= 1);
  const auto add_region = [this](std::size_t size_bytes) {
    const std::size_t offset = batch_bytes_;
    batch_bytes_ += align_up(size_bytes, kRegionAlignment);
    checked_multiply(batch_bytes_, 1);
    return offset;
  };
  for (const LeafFormat& leaf : leaves) {
    const std::size_t bytes = leaf.slot_bytes;
    slot_bytes_ = align_up(slot_bytes_, std::min(kLeafAlignment, std::max<std::size_t>(bytes & (~bytes + 1), 1)));
    leaves_.push_back({.size_bytes = bytes,
                       .slot_offset = slot_bytes_,
                       .row_bytes = leaf.row_bytes,
                       .batch_offset = add_region(checked_multiply(leaf.row_bytes, rows)),
                       .variable = leaf.variable,
                       .ragged = leaf.ragged});
    // The other sums of one example are at most this one.
    slot_bytes_ = checked_multiply(slot_bytes_ + checked_multiply(bytes, 1), 1);
    example_bytes_ += bytes;
    row_bytes_ += leaf.row_bytes;
    variable_bytes_ = checked_multiply(variable_bytes_ + checked_multiply(leaf.variable.max_bytes, 1), 1);
    ragged_ = ragged_ || leaf.ragged;
  }
  slot_bytes_ = std::max(align_up(slot_bytes_, kSlotAlignment), kSlotAlignment);
  if (with_info_) {
    source_index_offset_ = add_region(sizeof(std::int64_t) * rows);
    use_offset_ = add_region(sizeof(std::int32_t) * rows);
  }
  batch_bytes_ = std::max<std::size_t>(batch_bytes_, 1);
}

}  // namespace pyecho
