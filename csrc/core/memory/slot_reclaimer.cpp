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
                          slots.end());  // within what was reserved: a batch has no more rows
      parked.whole = whole;
      return;
    }
  }
  std::size_t released = release(slots);
  if (whole) {
    const std::scoped_lock lock(mutex_);
    for (std::uint64_t front = batch + 1;; ++front) {
      Parked& parked = parked_[front % parked_.size()];
      front_.store_release(front);  // [S1] pairs with [S2]
      released += release(parked.slots);
      parked.slots.clear();
      if (!std::exchange(parked.whole, false)) {
        break;
      }
    }
  }
  pool_.announce_released(released);
}

std::size_t SlotReclaimer::release(std::span<const std::uint32_t> slots) {
  for (const std::uint32_t slot : slots) {
    pool_.release(slot);
  }
  return slots.size();
}

}  // namespace pyecho
