#include "core/memory/slot_reclaimer.hpp"

#include <utility>

namespace pyecho {

SlotReclaimer::SlotReclaimer(SlotPool& pool, std::uint32_t batches, std::uint32_t rows)
    : pool_(pool), parked_(batches) {
  for (Parked& parked : parked_) {
    parked.slots.reserve(rows);
  }
}

void SlotReclaimer::copied(std::uint64_t batch, std::span<const std::uint32_t> slots, bool whole) {
  if (front_.load_acquire() != batch) {  // [S2] pairs with [S1]
    const std::scoped_lock lock(mutex_);
    if (front_.load_relaxed() != batch) {
      Parked& parked = parked_[batch % parked_.size()];
      parked.slots.insert(parked.slots.end(), slots.begin(),
                          slots.end());  // never allocates, because a batch has at most `rows` rows
      parked.whole = whole;
      return;
    }
  }
  pool_.release(slots);
  if (whole) {
    const std::scoped_lock lock(mutex_);
    for (std::uint64_t front = batch + 1;; ++front) {
      Parked& parked = parked_[front % parked_.size()];
      front_.store_release(front);  // [S1] pairs with [S2]
      pool_.release(parked.slots);
      parked.slots.clear();
      if (!std::exchange(parked.whole, false)) {
        break;
      }
    }
  }
}

void SlotReclaimer::reset(std::uint64_t batch) {
  for (Parked& parked : parked_) {
    parked.slots.clear();
    parked.whole = false;
  }
  front_.store_release(batch);
}

}  // namespace pyecho
