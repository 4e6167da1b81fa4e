#include "core/plan/rounds_pool.hpp"

#include <algorithm>
#include <utility>

namespace pyecho {

RoundsPool::RoundsPool(const PlanConfig& config)
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

std::size_t RoundsPool::size_bytes(const PlanConfig& config) noexcept {
  return config.slots * (sizeof(Resident) + sizeof(left_[0])) + config.capacity * sizeof(order_[0]) * 2 +
         config.batch_size * sizeof(due_[0]);
}

void RoundsPool::clear() {
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

void RoundsPool::begin_batch() {
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

void RoundsPool::admit(const Item& added) {
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

void RoundsPool::drain() {
  most_uses_ = min_uses_;
  while (!leaving_.empty()) {
    leave(leaving_.front());
  }
  begin_round();
}

void RoundsPool::fetch(Ahead& ahead) const noexcept {
  if (ahead.places > ahead.end) {
    __builtin_prefetch(&order_[ahead.to_place.below(ahead.places--)]);
  }
  if (ahead.items > ahead.places + kItemsAhead) {
    __builtin_prefetch(&items_[order_[ahead.to_item.below(ahead.items--)]]);
    __builtin_prefetch(&items_[order_[ahead.items]]);
  }
}

std::uint32_t RoundsPool::draw(std::span<Use> rows, Xoshiro256& random) {
  std::uint32_t drawn = 0;
  const std::size_t wanted = resident_ > kLargePool ? rows.size() : 0;
  const std::uint32_t end = active_ - static_cast<std::uint32_t>(std::min<std::size_t>(wanted, active_));
  Ahead ahead{.places = active_, .items = active_, .end = end, .to_place = random, .to_item = random};
  for (std::uint32_t fetched = 0; fetched < kPlacesAhead && ahead.places > end; ++fetched) {
    fetch(ahead);
  }
  while (drawn < rows.size()) {
    fetch(ahead);
    if (active_ == 0) {
      if (unique_ || resident_ == 0) {
        break;
      }
      begin_round();
    }
    const std::uint32_t place = random.below(active_);
    const std::uint32_t slot = order_[place];
    swap_places(place, --active_);
    Resident& item = items_[slot];
    active_repeats_ -= item.leaving == kNowhere ? 0 : 1;
    const bool last = item.uses + 1 == most_uses_;
    rows[drawn++] = {.slot = slot, .ordinal = item.uses++, .source_index = item.source_index, .last = last};
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
        leaving_.push_back(slot);
        item.leaving = static_cast<std::uint32_t>(leaving_.size() - 1);
      }
      raise(item.leaving);
    }
  }
  return drawn;
}

// ---------------------------------------------------------------- leaving

void RoundsPool::leave(std::uint32_t slot) {
  remove(slot);
  left_.push_back(slot);
}

void RoundsPool::remove(std::uint32_t slot) {
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
    const std::uint32_t place = item.leaving;
    const std::uint32_t moved = leaving_.back();
    leaving_.pop_back();
    if (moved != slot) {
      put_at(place, moved);
      raise(place);
      lower(items_[moved].leaving);
    }
  }
}

inline void RoundsPool::swap_places(std::uint32_t place, std::uint32_t other) noexcept {
  std::swap(order_[place], order_[other]);
  items_[order_[place]].place = place;
  items_[order_[other]].place = other;
}

void RoundsPool::unlink(const Resident& item) noexcept {
  (item.older == kNowhere ? oldest_ : items_[item.older].younger) = item.younger;
  (item.younger == kNowhere ? youngest_ : items_[item.younger].older) = item.older;
}

// ---------------------------------------------------------------- the heap of those that may leave

inline bool RoundsPool::leaves_before(std::uint32_t slot, std::uint32_t other) const noexcept {
  const Resident& item = items_[slot];
  const Resident& than = items_[other];
  return item.uses != than.uses ? item.uses > than.uses : item.number < than.number;
}

inline void RoundsPool::put_at(std::uint32_t place, std::uint32_t slot) noexcept {
  leaving_[place] = slot;
  items_[slot].leaving = place;
}

void RoundsPool::raise(std::uint32_t place) noexcept {
  const std::uint32_t slot = leaving_[place];
  while (place > 0 && leaves_before(slot, leaving_[(place - 1) / 2])) {
    put_at(place, leaving_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put_at(place, slot);
}

void RoundsPool::lower(std::uint32_t place) noexcept {
  const std::uint32_t slot = leaving_[place];
  for (std::uint32_t child = 2 * place + 1; child < leaving_.size(); child = 2 * place + 1) {
    if (child + 1 < leaving_.size() && leaves_before(leaving_[child + 1], leaving_[child])) {
      ++child;
    }
    if (!leaves_before(leaving_[child], slot)) {
      break;
    }
    put_at(place, leaving_[child]);
    place = child;
  }
  put_at(place, slot);
}

}  // namespace pyecho
