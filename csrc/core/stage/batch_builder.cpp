#include "core/stage/batch_builder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/memory/stream_copy.hpp"

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
inline void copy_leaf(std::byte* to, const std::byte* from, std::size_t size_bytes, bool stream) noexcept {
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
      copy_bytes(to, from, size_bytes, stream);
  }
}

}  // namespace

BatchBuilder::BatchBuilder(const SlotLayout& layout, const std::byte* slots, SlotReclaimer& spent, bool stream)
    : layout_(&layout), slots_(slots), spent_(&spent), stream_(stream), plan_(layout.rows()), spends_(kGroupRows) {}

void BatchBuilder::prefetch(std::uint32_t row) const noexcept {
  const std::byte* const slot = slots_ + plan_[row].slot * layout_->slot_bytes();
  const std::size_t bytes = std::min(layout_->slot_bytes(), kPrefetchBytes);
  for (std::size_t offset = 0; offset < bytes; offset += kPrefetchStep) {
    __builtin_prefetch(slot + offset);
  }
}

void BatchBuilder::copy_row(const Use& use, std::uint32_t row) const noexcept {
  const std::byte* const slot = slots_ + use.slot * layout_->slot_bytes();
  std::byte* const block = batch_->memory.data();
  for (const SlotLayout::Leaf& leaf : layout_->leaves()) {
    copy_leaf(block + leaf.batch_offset + row * leaf.size_bytes, slot + leaf.slot_offset, leaf.size_bytes, stream_);
  }
  if (layout_->with_info()) {
    const auto index = static_cast<std::int64_t>(use.source_index);
    const auto ordinal = static_cast<std::int32_t>(use.ordinal);
    std::memcpy(block + layout_->source_index_offset() + row * sizeof(index), &index, sizeof(index));
    std::memcpy(block + layout_->use_offset() + row * sizeof(ordinal), &ordinal, sizeof(ordinal));
  }
}

bool BatchBuilder::copy(std::size_t max_bytes) {
  const std::size_t rows = std::max<std::size_t>(1, max_bytes / layout_->slot_bytes());
  const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(planned_, copied_ + rows));
  if (copied_ == end) {
    return false;
  }
  copy_to(end);
  return true;
}

Batch* BatchBuilder::end() {
  copy_to(planned_);
  spent_->copied(number_, {}, true);
  return drop();
}

Batch* BatchBuilder::drop() noexcept {
  planned_ = 0;
  copied_ = 0;
  return std::exchange(batch_, nullptr);
}

void BatchBuilder::copy_to(std::uint32_t end) {
  const auto group_rows =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kGroupBytes / layout_->slot_bytes(), 1, kGroupRows));
  for (std::uint32_t row = copied_; row < std::min(copied_ + kPrefetchRows, end); ++row) {
    prefetch(row);
  }
  while (copied_ < end) {
    const std::uint32_t group_end = std::min(copied_ + group_rows, end);
    std::size_t spent = 0;
    for (std::uint32_t row = copied_; row < group_end; ++row) {
      if (row + kPrefetchRows < end) {
        prefetch(row + kPrefetchRows);
      }
      copy_row(plan_[row], row);
      spends_[spent] = plan_[row].slot;
      spent += plan_[row].last ? 1 : 0;  // without a branch: nobody can predict it
    }
    copied_ = group_end;
    batch_->rows = copied_;
    if (spent > 0) {
      spent_->copied(number_, std::span(spends_).first(spent), false);
    }
  }
  if (stream_) {
    stream_fence();  // before the batch is handed over, whole or as it is; slots that went back above were only read
  }
}

}  // namespace pyecho
