// The last items of a joint plan, which keep their slots for additional uses, in and out of the pool. Pure arithmetic.
//
// An item is a spare from its admission until so many others were admitted as are kept. So it does not depend on time which
// items are, and there is one at any moment after the first admission.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/plan/plan_config.hpp"

namespace pyecho {

class Spares {
 public:
  // Throws std::bad_alloc.
  explicit Spares(const PlanConfig& config)
      : unique_(config.unique_in_batch), ring_(config.spares()), items_(config.joint ? config.slots : 0) {
    clear();
  }
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config) noexcept {
    return config.joint ? config.spares() * sizeof(std::uint32_t) + config.slots * sizeof(Item) : 0;
  }

  void clear() {
    ring_.assign(ring_.size(), kNone);
    items_.assign(items_.size(), Item{});
    next_place_ = next_ = 0;
  }

  // Adds an item. Returns the slot that is free by that, that of a former spare which is in the pool no more, or kNone.
  // `in_pool`: false for an item that is there for additional uses only.
  std::uint32_t admit(std::uint32_t slot, std::uint64_t source_index, bool in_pool) {
    std::uint32_t& place = ring_[next_place_];
    next_place_ = next_place_ + 1 == ring_.size() ? 0 : next_place_ + 1;
    const std::uint32_t former = place;
    place = slot;
    items_[slot] = {.source_index = source_index, .batch = 0, .uses = 0, .spare = true, .in_pool = in_pool};
    if (former == kNone) {
      return kNone;
    }
    items_[former].spare = false;
    return items_[former].in_pool ? kNone : former;
  }
  // An item leaves the pool. Returns true if it is a spare, so that its slot must not be released.
  bool leaves(std::uint32_t slot) noexcept {
    items_[slot].in_pool = false;
    return items_[slot].spare;
  }
  [[nodiscard]] bool holds(std::uint32_t slot) const noexcept { return items_[slot].spare && !items_[slot].in_pool; }

  // Counts a use that the pool has drawn. `batch`: its number, from 1 on.
  void note(const Use& use, std::uint64_t batch) noexcept {
    Item& item = items_[use.slot];
    item.batch = batch;
    ++item.uses;
  }
  // Returns an additional use, of each spare in turn; with unique_in_batch, of one that is not in this batch, while there is
  // any.
  [[nodiscard]] Use draw(std::uint64_t batch) noexcept {
    std::size_t chosen = next_;
    for (std::size_t i = 0; i < ring_.size(); ++i) {
      const std::size_t place = (next_ + i) % ring_.size();
      if (ring_[place] != kNone && (!unique_ || items_[ring_[place]].batch != batch)) {
        chosen = place;
        break;
      }
    }
    chosen = ring_[chosen] == kNone ? 0 : chosen;  // the first place is filled first
    next_ = (chosen + 1) % ring_.size();
    Item& item = items_[ring_[chosen]];
    item.batch = batch;
    return {.slot = ring_[chosen], .ordinal = ~item.uses++, .source_index = item.source_index, .last = false};
  }

  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

 private:
  struct Item {
    std::uint64_t source_index;
    std::uint64_t batch;  // the last one that took it, 0: none
    std::uint32_t uses;   // so far, additional ones included
    bool spare;
    bool in_pool;
  };

  const bool unique_;
  std::vector<std::uint32_t> ring_;  // slots
  std::vector<Item> items_;          // by slot
  std::size_t next_place_ = 0;       // for an item
  std::size_t next_ = 0;             // place of the next additional use
};

}  // namespace pyecho
