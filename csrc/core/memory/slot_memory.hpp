// The storage of slots: a record for each. The record says which shape a leaf of variable size has. The elements lie in
// the slot, if it is whole, in pages of shared memory that come when they are written; else in memory of their own, as
// much as the item needs. The memory of an item that is gone serves the next one in the slot, unless that needs more, or
// less than half: then the rest goes back to the system.
//
// A process that is killed while it writes an item leaves nothing to repair: the slot has all that it may have touched.
//
// The thread that has a slot (its producer, then those that copy from it, then the one that releases it) may call
// everything for this slot; the rings of SlotRing order these threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "core/memory/host_memory.hpp"
#include "core/memory/sizes.hpp"
#include "core/memory/slot_layout.hpp"

namespace pyecho {

// A leaf of variable size in the record of a slot; its extents follow.
struct VariableItem {
  std::uint64_t present;  // 0: no item
  std::uint64_t size_bytes;
  std::byte* memory;           // with or without an item; null in a whole slot
  std::uint64_t memory_bytes;  // in a whole slot those of pages, at most

  // Returns the elements; null if there is no item.
  [[nodiscard]] const std::byte* data(const SlotLayout::Leaf& leaf) const noexcept {
    const auto* const slot = reinterpret_cast<const std::byte*>(this) - leaf.slot_offset;
    const std::byte* const elements = leaf.elements_offset > 0 ? slot + leaf.elements_offset : memory;
    return present != 0 ? elements : nullptr;
  }
  [[nodiscard]] std::span<const std::uint64_t> shape(const SlotLayout::Leaf& leaf) const noexcept {
    return {reinterpret_cast<const std::uint64_t*>(this + 1), leaf.variable.axes};
  }
};
static_assert(sizeof(VariableItem) == LeafFormat::kHeaderBytes);

class SlotMemory {
 public:
  // `layout` outlives it. `shared`: the records lie in memory that other processes can map. Throws std::bad_alloc.
  SlotMemory(const SlotLayout& layout, std::uint32_t slots, bool shared = false)
      : layout_(layout),
        slots_(slots),
        records_(shared ? HostMemory::shared(slots * layout.slot_distance(), layout.is_whole(), Placement::for_slots())
                        : HostMemory(slots * layout.slot_distance(), Placement::for_slots())) {}
  ~SlotMemory() {
    for (std::uint32_t slot = 0; layout_.has_variable() && !layout_.is_whole() && slot < slots_; ++slot) {
      each_leaf(slot, [](const VariableItem& item) { std::free(item.memory); });
    }
  }
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  // Returns the record of a slot, layout.slot_bytes() of it.
  [[nodiscard]] std::byte* data(std::uint32_t slot = 0) const noexcept {
    return records_.data() + slot * layout_.slot_distance();
  }
  [[nodiscard]] const HostMemory& records() const noexcept { return records_; }
  [[nodiscard]] VariableItem& item(std::uint32_t slot, const SlotLayout::Leaf& leaf) const noexcept {
    return *reinterpret_cast<VariableItem*>(data(slot) + leaf.slot_offset);
  }

  // Gives a leaf of variable size memory for an item of this shape, in the place of what its record had. Returns null,
  // and changes nothing, if the system has none.
  static std::byte* allocate(std::byte* record, const SlotLayout::Leaf& leaf,
                             std::span<const std::uint64_t> shape) noexcept {
    const std::size_t size_bytes = bytes_of_array(leaf.variable.element_bytes, shape);
    VariableItem& item = *reinterpret_cast<VariableItem*>(record + leaf.slot_offset);
    const bool is_much = item.memory_bytes / 2 > std::max(size_bytes, kSmallBytes);
    std::byte* elements = record + leaf.elements_offset;
    if (leaf.elements_offset > 0) {
      if (is_much) {  // the whole rest, because the last items before this one have left some at their ends
        HostMemory::drop_pages(elements + size_bytes, leaf.variable.max_bytes - size_bytes);
      }
      item.memory_bytes = is_much ? size_bytes : std::max(item.memory_bytes, size_bytes);
    } else if (item.memory_bytes <= size_bytes || is_much) {
      auto* const memory = static_cast<std::byte*>(std::malloc(size_bytes + 1));  // not null for an empty one
      if (memory == nullptr) {
        return nullptr;
      }
      std::free(item.memory);
      item.memory = memory;
      item.memory_bytes = size_bytes + 1;
    }
    elements = leaf.elements_offset > 0 ? elements : item.memory;
    item.present = 1;
    item.size_bytes = size_bytes;
    std::memcpy(&item + 1, shape.data(), shape.size_bytes());
    return elements;
  }
  // Forgets what leaves of variable size have in these slots.
  void drop(std::span<const std::uint32_t> slots) noexcept {
    if (!layout_.has_variable()) {
      return;
    }
    for (const std::uint32_t slot : slots) {
      each_leaf(slot, [](VariableItem& item) {
        item.present = 0;
        item.size_bytes = 0;
      });
    }
  }
  void drop_all() noexcept {
    for (std::uint32_t slot = 0; layout_.has_variable() && slot < slots_; ++slot) {
      drop(std::span(&slot, 1));
    }
  }

 private:
  static constexpr std::size_t kSmallBytes = 4096;  // are kept for any smaller item

  template <class Visit>
  void each_leaf(std::uint32_t slot, const Visit& visit) const noexcept {
    for (const SlotLayout::Leaf& leaf : layout_.leaves()) {
      if (leaf.variable.axes > 0) {
        visit(item(slot, leaf));
      }
    }
  }

  const SlotLayout& layout_;
  const std::uint32_t slots_;
  const HostMemory records_;  // zeroed
};

}  // namespace pyecho
