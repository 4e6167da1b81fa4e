#include "core/memory/slot_pool.hpp"

#include <algorithm>
#include <thread>

namespace pyecho {

SlotPool::SlotPool(std::uint32_t slots, std::uint32_t wake_group)
    : slots_(slots), wake_group_(wake_group), free_(slots), filled_(slots) {
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    release(slot);
  }
}

Outcome SlotPool::try_reserve(Reservation& reservation) noexcept {
  if (closed() || stopped()) {
    return Outcome::kClosed;
  }
  std::uint32_t slot = 0;
  if (free_.try_pop(slot) != Outcome::kOk) {
    return Outcome::kFull;
  }
  // The ticket decides the order, and the same word decides whether this reservation came before close().
  const std::uint64_t ticket = tickets_.fetch_add_acq_rel(1);
  if ((ticket & kClosedBit) != 0) {
    release(slot);
    return Outcome::kClosed;
  }
  reservation = {.slot = slot, .ticket = ticket};
  return Outcome::kOk;
}

Outcome SlotPool::reserve(Reservation& reservation, Deadline deadline) {
  for (;;) {
    // Read before the attempt: a release between the two ends the wait below at once.
    const std::uint64_t seen = released_.read();
    if (const Outcome outcome = try_reserve(reservation); outcome != Outcome::kFull) {
      return outcome;
    }
    // The planner may be asleep until many items have come; it can free slots with the few there are.
    if (waiting_.fetch_add_acq_rel(1) == 0) {
      committed_.alert();
    }
    // A reservation that is still open keeps its slot from the planner, perhaps until this thread goes on: then every
    // slot counts. With none open, all slots are the planner's, and a group of them will come back.
    const std::uint64_t settled = committed_.read();  // before the tickets, so that it cannot be too many
    // Slots that lie behind a release in progress were counted in `seen` and cannot be had yet: that release counts.
    const bool none_free = free_.approx_size() == 0;
    const std::uint64_t group = none_free && settled == tickets_.load_acquire() ? wake_group_ : 1;
    const Outcome outcome = released_.await(seen + group, deadline, WaitStrategy::spin_then_sleep(),
                                            [this] { return closed() || stopped(); });
    waiting_.fetch_add_acq_rel(static_cast<std::uint32_t>(-1));
    if (outcome == Outcome::kTimeout) {
      const Outcome last = try_reserve(reservation);
      return last == Outcome::kFull ? Outcome::kTimeout : last;
    }
  }
}

void SlotPool::abort(Reservation reservation) {
  filled_.publish(reservation.ticket, reservation.slot | kAborted);
  committed_.advance();
  aborted_.fetch_add_acq_rel(1);  // after it was counted as committed
}

void SlotPool::close() {
  const std::uint64_t tickets = tickets_.fetch_or_acq_rel(kClosedBit);
  if ((tickets & kClosedBit) == 0) {
    end_ticket_.store_release(tickets);  // [C1] pairs with [C2]
  }
  committed_.alert();
  released_.alert();
}

void SlotPool::stop() {
  stopped_.store_release(1);
  close();
}

Outcome SlotPool::try_take(std::uint32_t& slot) {
  for (;;) {
    if (filled_.try_take(slot) != Outcome::kOk) {
      // Count first, then look again: whatever is committed after the count ends the wait that follows.
      known_ = committed_.read();
      if (filled_.try_take(slot) != Outcome::kOk) {
        return filled_.taken() == end_ticket_.load_acquire() ? Outcome::kEnd : Outcome::kEmpty;  // [C2]
      }
    }
    if ((slot & kAborted) == 0) {
      return Outcome::kOk;
    }
    release(slot & ~kAborted);
    announce_released(1);
  }
}

Outcome SlotPool::await_items(std::uint64_t items, Deadline deadline) {
  const auto urgent = [this] { return waiting_.load_acquire() > 0 || closed(); };
  const std::uint64_t taken = filled_.taken();
  const bool was_urgent = urgent();
  // A commit that came while an older ticket is still open is news already known (known_): wait for another.
  const std::uint64_t target = std::max(known_ + 1, was_urgent ? 0 : taken + items);
  return committed_.await(target, deadline, WaitStrategy::spin_then_sleep(), [&] {
    return stopped() || taken == end_ticket_.load_acquire() || (!was_urgent && urgent());
  });
}

// There is a cell for every slot, yet the ring can look full: a producer that was suspended between claiming a cell and
// emptying it holds up that cell, while the slots of others go round. It needs only to run on for a few instructions.
void SlotPool::release(std::uint32_t slot) noexcept {
  while (free_.try_push(slot) != Outcome::kOk) {
    std::this_thread::yield();
  }
}

}  // namespace pyecho
