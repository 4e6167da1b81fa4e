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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/plan_config.hpp"
#include "core/random.hpp"

namespace pyecho {

class RoundsPool {
 public:
  // Throws std::bad_alloc.
  explicit RoundsPool(const PlanConfig& config)
      : capacity_(config.capacity),
        min_uses_(config.min_uses),
        max_uses_(static_cast<std::uint32_t>(config.factor)),
        max_age_(config.max_age),
        unique_(config.unique_in_batch),
        items_(config.slots),
        order_(config.capacity),
        most_uses_(max_uses_) {
    leaving_.reserve(capacity_);
    due_.reserve(config.batch_size);
    left_.reserve(config.slots);
    clear();
  }
  // Returns the bytes that the pool of a configuration allocates.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config) noexcept {
    return config.slots * (sizeof(Resident) + sizeof(left_[0])) +
           config.capacity * (sizeof(order_[0]) + sizeof(leaving_[0])) + config.batch_size * sizeof(due_[0]);
  }

  // Removes all items, and keeps left().
  void clear() {
    active_ = active_repeats_ = resident_ = 0;
    uses_left_ = admitted_ = batch_ = 0;
    most_uses_ = max_uses_;
    leaving_.clear();
    due_.clear();
    oldest_ = youngest_ = kNowhere;
    for (Resident& item : items_) {
      item.place = kNowhere;
    }
  }

  // Items that are due can be drawn again; those that are too old leave.
  void begin_batch() {
    ++batch_;
    while (max_age_ > 0 && oldest_ != kNowhere && batch_ - items_[oldest_].batch >= max_age_) {
      const std::uint32_t slot = oldest_;
      Resident& item = items_[slot];
      if (item.uses >= min_uses_) {
        leave(slot);
      } else {
        unlink(item);
        item.overdue = true;
      }
    }
    for (const std::uint32_t slot : due_) {
      const Resident& item = items_[slot];
      if (item.place == kNowhere) {
        continue;
      }
      if (item.uses < min_uses_) {
        if (item.place >= active_) {
          swap_places(item.place, active_++);
        }
      } else if (item.overdue) {  // else it was drawn again in that batch, and has had its least uses now
        leave(slot);
      }
    }
    due_.clear();
  }
  // True if make_room() may be called. `others`: places of the pool that are kept for items elsewhere.
  [[nodiscard]] bool has_room(std::uint32_t others = 0) const noexcept {
    return resident_ + others < capacity_ || may_leave();
  }
  // An item leaves if all places are taken.
  void make_room(std::uint32_t others = 0) {
    if (resident_ + others == capacity_) {
      leave(leaving_.front().slot);
    }
  }
  // Requires a free place.
  void admit(const Item& added) {
    const std::uint32_t slot = added.slot;
    items_[slot] = {.source_index = added.source_index,
                    .uses = 0,
                    .place = resident_,
                    .leaving = kNowhere,
                    .overdue = false,
                    .older = youngest_,
                    .younger = kNowhere,
                    .number = admitted_++,
                    .batch = batch_};
    (youngest_ == kNowhere ? oldest_ : items_[youngest_].younger) = slot;
    youngest_ = slot;
    order_[resident_] = slot;
    swap_places(resident_++, active_++);
    uses_left_ += max_uses_;
  }
  // True if an item has had its least uses.
  [[nodiscard]] bool may_leave() const noexcept { return !leaving_.empty(); }
  // No item follows.
  void drain() {
    most_uses_ = min_uses_;
    while (!leaving_.empty()) {
      leave(leaving_.front().slot);
    }
    begin_round();
  }
  // Begins a round if fewer than `rows` items are left in this one.
  void begin_draws(std::uint32_t rows) noexcept {
    if (active_ < rows) {
      begin_round();
    }
  }
  // Draws uses until `rows` is full or none is left for this batch. Returns their number.
  std::uint32_t draw(std::span<Use> rows, RandomAhead& random) {
    const bool large = resident_ > kLargePool;
    std::uint32_t drawn = 0;
    while (drawn < rows.size()) {
      if (active_ == 0) {
        if (unique_ || resident_ == 0) {
          break;
        }
        begin_round();
      }
      if (large) {
        fetch(random);
      }
      const std::uint32_t place = random.below(active_);
      const std::uint32_t slot = order_[place];
      swap_places(place, --active_);
      Resident& item = items_[slot];
      active_repeats_ -= item.leaving == kNowhere ? 0 : 1;
      const bool last = item.uses + 1 == most_uses_;
      rows[drawn++] = {
          .slot = slot, .ordinal = item.uses++, .source_index = item.source_index, .last = last, .pass = 0};
      --uses_left_;
      if (last) {
        remove(slot);
        continue;
      }
      if (item.uses < min_uses_ || item.overdue) {
        due_.push_back(slot);
      }
      if (item.uses >= min_uses_) {
        if (item.leaving == kNowhere) {
          item.leaving = static_cast<std::uint32_t>(leaving_.size());
          leaving_.emplace_back();
        }
        raise(item.leaving, {.number = item.number, .uses = item.uses, .slot = slot});
      }
    }
    return drawn;
  }

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

  struct Leaving {
    std::uint64_t number;
    std::uint32_t uses;
    std::uint32_t slot;
  };

  static constexpr std::uint32_t kLargePool = 1U << 15U;  // items, beyond the second level of caches
  static constexpr std::uint32_t kItemsAhead = 8;         // draws

  // In a large pool each draw misses the caches: for its place, for its item, and for the item that goes there instead.
  // As a round goes on, each draw has a place less to choose from.
  void fetch(const RandomAhead& random) const noexcept {
    if (active_ > RandomAhead::kAhead) {
      __builtin_prefetch(&order_[random.peek(RandomAhead::kAhead, active_ - RandomAhead::kAhead)]);
      __builtin_prefetch(&items_[order_[random.peek(kItemsAhead, active_ - kItemsAhead)]]);
      __builtin_prefetch(&items_[order_[active_ - kItemsAhead]]);
    }
  }
  void begin_round() noexcept {
    active_ = resident_;
    active_repeats_ = static_cast<std::uint32_t>(leaving_.size());
  }
  void remove(std::uint32_t slot) {
    Resident& item = items_[slot];
    uses_left_ -= max_uses_ - item.uses;
    if (item.place < active_) {
      swap_places(item.place, --active_);
      active_repeats_ -= item.leaving == kNowhere ? 0 : 1;
    }
    swap_places(item.place, --resident_);
    item.place = kNowhere;
    if (!item.overdue) {
      unlink(item);
    }
    if (item.leaving != kNowhere) {
      fill_gap(item.leaving);
    }
  }

  // -- Leaving --

  void leave(std::uint32_t slot) {
    remove(slot);
    left_.push_back(slot);
  }
  void swap_places(std::uint32_t place, std::uint32_t other) noexcept {
    std::swap(order_[place], order_[other]);
    items_[order_[place]].place = place;
    items_[order_[other]].place = other;
  }
  void unlink(const Resident& item) noexcept {
    (item.older == kNowhere ? oldest_ : items_[item.older].younger) = item.younger;
    (item.younger == kNowhere ? youngest_ : items_[item.younger].older) = item.older;
  }

  // -- The heap of those that may leave --

  // Returns true if the first leaves before the second.
  [[nodiscard]] static bool leaves_before(const Leaving& item, const Leaving& than) noexcept {
    return (item.uses > than.uses) | ((item.uses == than.uses) & (item.number < than.number));  // no branch
  }
  void put_at(std::uint32_t place, const Leaving& item) noexcept {
    leaving_[place] = item;
    items_[item.slot].leaving = place;
  }
  // Puts an item at a place whose children leave after it, or before it in the heap.
  void raise(std::uint32_t place, const Leaving item) noexcept {
    for (; place > 0 && leaves_before(item, leaving_[(place - 1) / 2]); place = (place - 1) / 2) {
      put_at(place, leaving_[(place - 1) / 2]);
    }
    put_at(place, item);
  }
  // Fills the place of an item that has left. The gap goes down to the end of the heap, and the last item there: nearly
  // always it stays.
  void fill_gap(std::uint32_t place) noexcept {
    const Leaving last = leaving_.back();
    leaving_.pop_back();
    const auto size = static_cast<std::uint32_t>(leaving_.size());
    if (place == size) {
      return;
    }
    for (std::uint32_t child = 2 * place + 1; child < size; child = 2 * place + 1) {
      child += child + 1 < size && leaves_before(leaving_[child + 1], leaving_[child]) ? 1 : 0;
      put_at(place, leaving_[child]);
      place = child;
    }
    raise(place, last);
  }

  const std::uint32_t capacity_;
  const std::uint32_t min_uses_;
  const std::uint32_t max_uses_;
  const std::uint64_t max_age_;
  const bool unique_;

  std::vector<Resident> items_;       // by slot
  std::vector<std::uint32_t> order_;  // slots in the pool: those to be drawn in this round, then those at rest
  std::uint32_t active_ = 0;          // slots of this round
  std::uint32_t active_repeats_ = 0;  // of these, of items that have had their least uses
  std::uint32_t resident_ = 0;        // slots in the pool
  std::uint64_t uses_left_ = 0;       // of all of them
  std::uint32_t most_uses_;           // max_uses_, or min_uses_ after drain()
  std::vector<Leaving> leaving_;      // items that may leave: a binary heap, the first to leave on top
  std::vector<std::uint32_t> due_;    // slots drawn in this batch that begin_batch() has to look at
  std::vector<std::uint32_t> left_;
  std::uint32_t oldest_ = kNowhere;  // ends of the list of slots by age
  std::uint32_t youngest_ = kNowhere;
  std::uint64_t admitted_ = 0;
  std::uint64_t batch_ = 0;  // batches begun
};

}  // namespace pyecho
