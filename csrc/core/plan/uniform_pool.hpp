// The pool of a fixed echo factor: draws uniformly among all remaining uses of its items. Pure arithmetic.
//
// The remaining uses are an array of slot numbers, one entry for each use. A draw takes a random entry and moves the
// last one into its place, so its cost is constant for any capacity. With unique_in_batch a second use of an item in a
// batch is deferred to the next batch. A pool of one item needs one entry, whatever its uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/input.hpp"
#include "core/plan/plan_config.hpp"
#include "core/random.hpp"

namespace pyecho {

class UniformPool {
 public:
  // Throws std::bad_alloc.
  explicit UniformPool(const PlanConfig& config);
  // Returns the bytes that the pool of a configuration allocates.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config);

  void clear();

  [[nodiscard]] bool full() const noexcept { return resident_ == capacity_; }
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_; }
  [[nodiscard]] std::uint64_t uses_left() const noexcept { return left_ + deferred_.size(); }
  [[nodiscard]] bool holds(std::uint32_t slot) const noexcept { return resident_of_[slot].uses_left > 0; }

  // Allocates for as many uses, if that is more than a full pool has with the configured factor. Throws std::bad_alloc,
  // std::length_error.
  void make_room(std::uint64_t uses);
  // Requires that the pool is not full, and has room for the uses.
  void admit(const Item& item) noexcept;
  // Draws until `rows` is full, no entry is left, or refill() returns false. Calls refill() whenever an item has left
  // and another use is wanted; it may admit() one. Returns the number of uses drawn.
  template <class Refill>
  std::uint32_t draw(std::span<Use> rows, Xoshiro256& random, const Refill& refill);
  // Deferred uses can be drawn again.
  void end_batch() noexcept;

 private:
  struct Resident {
    std::uint64_t source_index;
    std::uint32_t uses_left;
    std::uint32_t uses_drawn;
  };

  static constexpr std::uint32_t kLargePool = 1U << 18U;  // entries, of four bytes, beyond the second level of caches
  static constexpr std::uint32_t kFetchedAhead = 16;      // entries
  static constexpr std::uint32_t kItemsAhead = 10;        // items of entries

  // True if the uses of an item are drawn one after the other.
  [[nodiscard]] bool in_order() const noexcept { return capacity_ == 1 && !unique_; }
  // Not inline, because its random numbers would take the registers of every draw.
  [[gnu::noinline]] void fetch_item(Xoshiro256& random, std::uint32_t left) const noexcept {
    if (left > kItemsAhead) {  // unique_in_batch may use up any number of entries in one draw
      __builtin_prefetch(&resident_of_[entries_[random.below(left - kItemsAhead)]]);
    }
  }
  [[nodiscard]] Use take_use(std::uint32_t slot) noexcept;
  [[nodiscard]] std::uint32_t draw_in_order(std::span<Use> rows) noexcept;

  const std::uint32_t capacity_;
  const bool unique_;
  std::uint32_t resident_ = 0;           // items
  std::uint32_t left_ = 0;               // entries in use
  std::vector<std::uint32_t> entries_;   // slot numbers that may be drawn, one for each use
  std::vector<std::uint32_t> deferred_;  // entries deferred to the next batch; unique_in_batch only
  std::vector<Resident> resident_of_;    // by slot
  std::uint32_t batch_ = 1;              // never 0
  std::vector<std::uint32_t>
      taken_by_;  // by slot: the last batch that took the item, modulo 2^32; unique_in_batch only
};

// Takes one use of the item, which leaves the pool with its last use.
inline Use UniformPool::take_use(std::uint32_t slot) noexcept {
  Resident& item = resident_of_[slot];
  const bool last = --item.uses_left == 0;
  resident_ -= last ? 1 : 0;
  return {.slot = slot, .ordinal = item.uses_drawn++, .source_index = item.source_index, .last = last};
}

template <class Refill>
std::uint32_t UniformPool::draw(std::span<Use> rows, Xoshiro256& random, const Refill& refill) {
  if (in_order()) {
    return draw_in_order(rows);
  }
  Xoshiro256 local = random;  // local copies keep the state of the draw in registers
  std::uint32_t* entries = entries_.data();
  std::uint32_t left = left_;
  std::uint32_t drawn = 0;
  const auto limit = static_cast<std::uint32_t>(rows.size());
  // In a large pool each draw misses the caches, for its entry and for the item. Copies of the random numbers run ahead
  // and fetch what will be drawn, or a neighbour if items come or go in between: then the item was fetched in vain.
  Xoshiro256 ahead = local;
  Xoshiro256 to_item = local;
  const bool large = left > kLargePool;
  for (std::uint32_t skipped = 0; large && skipped < kItemsAhead; ++skipped) {
    to_item.below(left);
  }
  for (std::uint32_t fetched = 0; large && fetched < std::min(limit, kFetchedAhead); ++fetched) {
    __builtin_prefetch(entries + ahead.below(left));
  }
  while (drawn < limit && left > 0) {
    if (large) {
      __builtin_prefetch(entries + ahead.below(left));
      fetch_item(to_item, left);
    }
    const std::uint32_t position = local.below(left);
    const std::uint32_t slot = entries[position];
    entries[position] = entries[--left];
    if (unique_) {
      if (taken_by_[slot] == batch_) {
        deferred_.push_back(slot);
        continue;
      }
      taken_by_[slot] = batch_;
    }
    const Use use = take_use(slot);
    rows[drawn++] = use;
    if (use.last &&
        drawn < limit) {  // after the last row of a batch, its deferred entries come before those of new items
      left_ = left;
      const bool more = refill();
      left = left_;
      entries = entries_.data();  // may have grown
      if (!more) {
        break;
      }
    }
  }
  random = local;
  left_ = left;
  return drawn;
}

}  // namespace pyecho
