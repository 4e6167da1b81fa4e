// The pool of an adaptive echo factor: which items stay, and which of them is drawn next. Pure arithmetic.
//
// Every item has between `min_uses` and `max_uses` uses. Items are drawn in rounds: an item that was drawn rests until
// the next round, which begins before a batch for which too few are left in this one. So uses spread evenly, and a pool
// that always gets new items in time makes no use beyond the least. An item that has not had its least uses is drawn
// again from the next batch on.
//
// An item leaves with its last use; for a new item while the pool is full, the one with the most uses first and the
// oldest among equals, but none without its least uses; once it is too old; and, at the end of the input, as soon as it
// has had its least uses.
//
//     pool.begin_batch();                             before each batch
//     while (... && pool.has_room()) { pool.make_room(); pool.admit(item); }
//     pool.begin_draws(rows);
//     drawn = pool.draw(rows, random);                once or more
//     ... pool.left() ...                             these slots are free
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/plan/input.hpp"
#include "core/plan/plan_config.hpp"
#include "core/random.hpp"

namespace pyecho {

class RoundsPool {
 public:
  // Throws std::bad_alloc.
  explicit RoundsPool(const PlanConfig& config);
  // Returns the bytes that the pool of a configuration allocates.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config) noexcept;

  // Removes all items, and keeps left().
  void clear();

  // Items that are due can be drawn again; those that are too old leave.
  void begin_batch();
  // True if make_room() may be called. `others`: places of the pool that are kept for items elsewhere.
  [[nodiscard]] bool has_room(std::uint32_t others = 0) const noexcept {
    return resident_ + others < capacity_ || may_leave();
  }
  // An item leaves if all places are taken.
  void make_room(std::uint32_t others = 0) {
    if (resident_ + others == capacity_) {
      leave(leaving_.front());
    }
  }
  // Requires a free place.
  void admit(const Item& added);
  // True if an item has had its least uses.
  [[nodiscard]] bool may_leave() const noexcept { return !leaving_.empty(); }
  // No item follows.
  void drain();
  // Begins a round if fewer than `rows` items are left in this one.
  void begin_draws(std::uint32_t rows) noexcept {
    if (active_ < rows) {
      begin_round();
    }
  }
  // Draws uses until `rows` is full or none is left for this batch. Returns their number.
  std::uint32_t draw(std::span<Use> rows, Xoshiro256& random);

  // True if a whole batch can be drawn.
  [[nodiscard]] bool suffices(std::uint32_t rows) const noexcept { return (unique_ ? resident_ : uses_left_) >= rows; }
  // True if a whole batch can be drawn of items that have not had their least uses.
  [[nodiscard]] bool suffices_without_repeats(std::uint32_t rows) const noexcept {
    return active_ >= rows && active_repeats_ == 0;
  }
  // Returns a lower bound of the items to admit before that.
  [[nodiscard]] std::uint32_t lacking(std::uint32_t rows) const noexcept { return active_ < rows ? rows - active_ : 1; }
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_; }
  [[nodiscard]] bool holds(std::uint32_t slot) const noexcept { return items_[slot].place != kNowhere; }
  // Slots of items that left between two of their uses, since the caller cleared this.
  [[nodiscard]] std::vector<std::uint32_t>& left() noexcept { return left_; }

 private:
  static constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();

  struct Resident {
    std::uint64_t source_index;  // first what each draw needs
    std::uint32_t uses;          // so far
    std::uint32_t place;         // in order_; kNowhere: not in the pool
    std::uint32_t leaving;       // place in leaving_, or kNowhere
    bool overdue;                // too old, and to leave after its least uses
    std::uint32_t older;         // the next older slot, or kNowhere
    std::uint32_t younger;       // likewise
    std::uint64_t number;        // in the order of admission
    std::uint64_t batch;         // the one before which it was admitted
  };

  // In a large pool each draw misses the caches: for its place, for its item, and for the item that goes there instead.
  // So copies of the random numbers run ahead and fetch them.
  struct Ahead {
    std::uint32_t places = 0;  // left in the round after the draws fetched so far
    std::uint32_t items = 0;   // likewise
    std::uint32_t end = 0;     // how far to fetch
    Xoshiro256 to_place;
    Xoshiro256 to_item;
  };
  static constexpr std::uint32_t kLargePool = 1U << 15U;  // items, beyond the second level of caches
  static constexpr std::uint32_t kPlacesAhead = 24;
  static constexpr std::uint32_t kItemsAhead = 12;  // of these places
  void fetch(Ahead& ahead) const noexcept;

  void begin_round() noexcept {
    active_ = resident_;
    active_repeats_ = static_cast<std::uint32_t>(leaving_.size());
  }
  void remove(std::uint32_t slot);
  void leave(std::uint32_t slot);
  void swap_places(std::uint32_t place, std::uint32_t other) noexcept;
  void unlink(const Resident& item) noexcept;
  [[nodiscard]] bool leaves_before(std::uint32_t slot, std::uint32_t other) const noexcept;
  void put_at(std::uint32_t place, std::uint32_t slot) noexcept;
  void raise(std::uint32_t place) noexcept;
  void lower(std::uint32_t place) noexcept;

  const std::uint32_t capacity_;
  const std::uint32_t min_uses_;
  const std::uint32_t max_uses_;
  const std::uint64_t max_age_;
  const bool unique_;

  std::vector<Resident> items_;         // by slot
  std::vector<std::uint32_t> order_;    // slots in the pool: those to be drawn in this round, then those at rest
  std::uint32_t active_ = 0;            // slots of this round
  std::uint32_t active_repeats_ = 0;    // of these, of items that have had their least uses
  std::uint32_t resident_ = 0;          // slots in the pool
  std::uint64_t uses_left_ = 0;         // of all of them
  std::uint32_t most_uses_;             // max_uses_, or min_uses_ after drain()
  std::vector<std::uint32_t> leaving_;  // slots that may leave: a binary heap, the first to leave on top
  std::vector<std::uint32_t> due_;      // slots drawn in this batch that begin_batch() has to look at
  std::vector<std::uint32_t> left_;
  std::uint32_t oldest_ = kNowhere;  // ends of the list of slots by age
  std::uint32_t youngest_ = kNowhere;
  std::uint64_t admitted_ = 0;
  std::uint64_t batch_ = 0;  // batches begun
};

}  // namespace pyecho
