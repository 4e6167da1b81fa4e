#include "core/gather.hpp"

#include <algorithm>
#include <cstring>

namespace pyecho {
namespace {

// Rows ahead of the copy whose source is fetched into the cache, and how much of each: enough to hide the latency of
// memory for small rows; in longer ones the processor's own prefetcher takes over after the first lines.
constexpr std::uint32_t kPrefetchRows = 6;
constexpr std::size_t kPrefetchBytes = 512;
constexpr std::size_t kPrefetchStep = 64;

// Rows (and at most about this many bytes) that are copied before their uses are spent: a read-modify-write after every
// row would wait until the row has left the store buffer, and sleeping producers are better woken for several slots.
constexpr std::uint32_t kGroupRows = 32;
constexpr std::size_t kGroupBytes = std::size_t{256} << 10;

// A leaf is often a label of a few bytes, for which a call of memcpy costs more than the copy.
inline void copy_leaf(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  switch (size_bytes) {
    case 1:
      std::memcpy(to, from, 1);
      break;
    case 2:
      std::memcpy(to, from, 2);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    default:
      std::memcpy(to, from, size_bytes);
  }
}

}  // namespace

Gatherer::Gatherer(const SlotLayout& layout, const std::byte* slots, UseCounts& uses, SlotPool& pool)
    : layout_(layout), slots_(slots), uses_(uses), pool_(pool), plan_(layout.rows()) {}

void Gatherer::prefetch(std::uint32_t row) const noexcept {
  const std::byte* const slot = slots_ + plan_[row].slot * layout_.slot_bytes();
  const std::size_t bytes = std::min(layout_.slot_bytes(), kPrefetchBytes);
  for (std::size_t offset = 0; offset < bytes; offset += kPrefetchStep) {
    __builtin_prefetch(slot + offset);
  }
}

void Gatherer::copy_row(const Use& use, std::uint32_t row) const noexcept {
  const std::byte* const slot = slots_ + use.slot * layout_.slot_bytes();
  std::byte* const block = batch_->memory.data();
  for (const SlotLayout::Leaf& leaf : layout_.leaves()) {
    copy_leaf(block + leaf.batch_offset + row * leaf.size_bytes, slot + leaf.slot_offset, leaf.size_bytes);
  }
  if (layout_.with_info()) {
    const auto index = static_cast<std::int64_t>(use.source_index);
    const auto ordinal = static_cast<std::int32_t>(use.ordinal);
    std::memcpy(block + layout_.source_index_offset() + row * sizeof(index), &index, sizeof(index));
    std::memcpy(block + layout_.use_offset() + row * sizeof(ordinal), &ordinal, sizeof(ordinal));
  }
}

bool Gatherer::copy(std::size_t max_bytes) {
  const auto rows_in = [this](std::size_t bytes) { return std::max<std::size_t>(1, bytes / layout_.slot_bytes()); };
  const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(planned_, copied_ + rows_in(max_bytes)));
  const auto group_rows = static_cast<std::uint32_t>(std::min<std::size_t>(kGroupRows, rows_in(kGroupBytes)));
  if (copied_ == end) {
    return false;
  }
  for (std::uint32_t row = copied_; row < std::min(copied_ + kPrefetchRows, end); ++row) {
    prefetch(row);
  }
  while (copied_ < end) {
    const std::uint32_t group_end = std::min(copied_ + group_rows, end);
    for (std::uint32_t row = copied_; row < group_end; ++row) {
      if (row + kPrefetchRows < end) {
        prefetch(row + kPrefetchRows);
      }
      copy_row(plan_[row], row);
    }
    spend(copied_, group_end);
    copied_ = group_end;
  }
  batch_->rows = copied_;
  return true;
}

// The uses of these rows are copied; slots without any left are free.
void Gatherer::spend(std::uint32_t begin, std::uint32_t end) {
  std::uint64_t released = 0;
  for (std::uint32_t row = begin; row < end; ++row) {
    if (uses_.spend(plan_[row])) {
      pool_.release(plan_[row].slot);
      ++released;
    }
  }
  pool_.announce_released(released);
}

}  // namespace pyecho
