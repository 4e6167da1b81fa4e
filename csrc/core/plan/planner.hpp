// Decides which item fills which position of which batch. Pure arithmetic: no threads, no clock, no payload.
//
// The planner deals in slot numbers. It admits items in source order while its pool has room; then each draw picks
// uniformly among all remaining uses of the items in the pool. An item leaves the pool with its last use, and the next
// one must be admitted before the next draw. So the sequence of draws is a function of (factor, capacity, seed, epoch)
// and the number of items alone.
//
//     while (planner.has_room()) { planner.admit(next slot);  or  planner.end_of_source(); }
//     Use use;
//     if (planner.draw(use)) ...
//
// The remaining uses are an array of slot numbers, one entry per use; a draw takes a random entry and moves the last one
// into its place. Cost per draw: constant, whatever the capacity.
//
// Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/random.hpp"

namespace pyecho {

// How often an item is used: `whole` times, and once more with probability `fraction` (drawn per item).
class EchoFactor {
 public:
  // factor >= 1 and finite; seed and epoch select the draws.
  EchoFactor(double factor, std::uint64_t seed, std::uint64_t epoch) noexcept;

  // Uses of the item with this number in source order.
  [[nodiscard]] std::uint32_t uses_of(std::uint64_t source_index) const noexcept {
    return whole_ + (fraction_ > 0.0 && unit_at(key_, source_index) < fraction_ ? 1U : 0U);
  }
  // Uses of the first `items` items together. Constant time for a whole factor, else linear in `items`.
  [[nodiscard]] std::uint64_t uses_of_first(std::uint64_t items) const noexcept;
  [[nodiscard]] std::uint32_t max_uses() const noexcept { return whole_ + (fraction_ > 0.0 ? 1U : 0U); }

 private:
  std::uint32_t whole_;
  double fraction_;
  std::uint64_t key_;
};

struct PlannerConfig {
  std::uint32_t capacity = 1;  // distinct items in the pool; 1: no shuffling, the uses of an item follow each other
  std::uint32_t slots = 1;     // slot numbers are below this; at least capacity
  double factor = 2.0;         // >= 1
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  bool unique_in_batch = false;  // no item twice between two begin_batch() calls

  // Remaining uses are counted in 32 bits: capacity * ceil(factor) must stay below this.
  static constexpr std::uint64_t kMaxUses = 0xFFFFFFFFU;
};

// One emission.
struct Use {
  std::uint32_t slot;
  std::uint32_t ordinal;       // 0 is the fresh use
  std::uint64_t source_index;  // the item's number in source order
  bool last;                   // the item has left the pool
};

class Planner {
 public:
  explicit Planner(const PlannerConfig& config);

  // True while an item has to be admitted (or the end of the source declared) before the next draw.
  [[nodiscard]] bool has_room() const noexcept { return !ended_ && resident_ < capacity_; }
  // Takes the next item of the source. Requires has_room(); `slot` must not be resident.
  void admit(std::uint32_t slot) noexcept;
  // No item follows; what is in the pool drains.
  void end_of_source() noexcept { ended_ = true; }
  // Every use of every item has been drawn, and none can follow.
  [[nodiscard]] bool exhausted() const noexcept { return ended_ && remaining_uses_ == 0; }

  // Starts a batch; before the admissions for its first draw. Matters to unique_in_batch only.
  void begin_batch() noexcept;
  // Requires !has_room(). False if no use is left that this batch may take.
  [[nodiscard]] bool draw(Use& use) noexcept;
  // As many draws as that one can make before it would answer false or has_room() is true; at most `uses.size()`. Returns
  // their number.
  [[nodiscard]] std::uint32_t draw(std::span<Use> uses) noexcept;

  // At least this many items must be admitted before `draws` more draws can be made (if the source does not end).
  [[nodiscard]] std::uint64_t min_admissions(std::uint64_t draws) const noexcept;

  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_; }
  [[nodiscard]] std::uint64_t admitted() const noexcept { return admitted_; }

 private:
  struct Item {
    std::uint64_t source_index;
    std::uint32_t uses_left;
    std::uint32_t uses_drawn;
  };

  [[nodiscard]] bool pick(std::uint32_t& slot) noexcept;
  [[nodiscard]] Use take_use(std::uint32_t slot) noexcept;

  EchoFactor factor_;
  Xoshiro256 random_;
  std::uint32_t capacity_;
  bool unique_;
  bool ended_ = false;
  std::uint32_t batch_ = 0;
  std::uint32_t resident_ = 0;
  std::uint32_t only_slot_ = 0;  // capacity 1: the resident item
  std::uint64_t admitted_ = 0;
  std::uint64_t remaining_uses_ = 0;
  std::vector<std::uint32_t> entries_;   // slot numbers that may be drawn, one per use; unused when capacity is 1
  std::vector<std::uint32_t> deferred_;  // entries that wait for the next batch
  std::vector<Item> items_;              // by slot
  std::vector<std::uint32_t> taken_by_;  // by slot: the last batch that took the item, modulo 2^32; 0 for none
};

}  // namespace pyecho
