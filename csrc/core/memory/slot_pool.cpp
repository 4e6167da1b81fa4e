#include "core/memory/slot_pool.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

namespace pyecho {
namespace {

std::uint32_t checked(std::uint32_t slots) {
  if (slots < 1 || slots > SlotPool::kMaxSlots) {
    throw std::invalid_argument("a pool has 1 to 2^30 - 1 slots, not " + std::to_string(slots));
  }
  return slots;
}

}  // namespace

SlotPool::SlotPool(std::uint32_t slots, std::uint32_t announce_group)
    : slots_(checked(slots)), announce_group_(announce_group), free_(slots), filled_(slots) {
  reset();
}

std::size_t SlotPool::size_bytes(std::uint32_t slots) noexcept {
  return 2 * std::size_t{RingGeometry(slots).cells()} * sizeof(std::uint64_t);
}

// ---------------------------------------------------------------- producers

Outcome SlotPool::try_reserve(std::span<Reservation> wanted, std::uint32_t& count) noexcept {
  count = 0;
  if (closed() || stopped()) {
    return Outcome::kClosed;
  }
  std::array<std::uint32_t, 64> popped;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by try_pop
  const std::uint32_t found = free_.try_pop(std::span(popped).first(std::min(wanted.size(), popped.size())));
  if (found == 0) {
    return Outcome::kFull;
  }
  const std::span<const std::uint32_t> slots = std::span(popped).first(found);
  // One word holds the tickets and the closed bit, so it also decides whether this reservation came before close().
  const std::uint64_t ticket = tickets_.fetch_add_acq_rel(found);
  if ((ticket & kClosedBit) != 0) {
    push_free(slots);
    return Outcome::kClosed;
  }
  for (; count < found; ++count) {
    wanted[count] = {.slot = slots[count], .ticket = ticket + count};
  }
  return Outcome::kOk;
}

Outcome SlotPool::reserve(Reservation& reservation, Deadline deadline) {
  for (;;) {
    // Read before the attempt, so that a release between the two ends the wait below at once.
    const std::uint64_t seen = released_.read();
    if (const Outcome outcome = try_reserve(reservation); outcome != Outcome::kFull) {
      return outcome;
    }
    if (Clock::now() >= deadline) {
      return Outcome::kTimeout;
    }
    // The planner may be sleeping until many items are committed, but it can free slots with the few there are.
    if (waiting_.fetch_add_acq_rel(1) == 0) {
      committed_.alert();
    }
    const Outcome outcome =
        released_.await(seen + 1, deadline, WaitStrategy::spin_then_sleep(), [this] { return closed() || stopped(); });
    waiting_.fetch_add_acq_rel(static_cast<std::uint32_t>(-1));
    if (outcome == Outcome::kTimeout) {
      const Outcome last = try_reserve(reservation);
      return last == Outcome::kFull ? Outcome::kTimeout : last;
    }
  }
}

void SlotPool::commit(std::span<const Reservation> reservations) {
  for (const Reservation& reservation : reservations) {
    filled_.publish(reservation.ticket, reservation.slot);
  }
  committed_.advance(reservations.size());
}

void SlotPool::publish_mark(Reservation reservation, std::uint32_t mark) {
  filled_.publish(reservation.ticket, reservation.slot | mark);
  committed_.advance();
  not_items_.fetch_add_acq_rel(1);  // after committed_, see committed()
}

// Wakes the planner at once, because an iteration may end here and the next item may come much later.
void SlotPool::end_pass(Reservation reservation) {
  pass_ends_.fetch_add_acq_rel(1);
  publish_mark(reservation, kPassEnd);
  committed_.alert();
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

// ---------------------------------------------------------------- planner

// Takes committed slots off the ring. Returns false if there are none.
bool SlotPool::look() noexcept {
  end_ = filled_.take(looked_);
  next_ = 0;
  return end_ > 0;
}

SlotPool::Taken SlotPool::take(std::span<const std::uint32_t>& slots) {
  for (;;) {
    if (next_ == end_ && !look()) {
      // Count first, then look again, so that every later commit ends the wait that follows.
      known_ = committed_.read();
      if (!look()) {
        return filled_.taken() == end_ticket_.load_acquire() ? Taken::kEnd : Taken::kNothing;  // [C2] pairs with [C1]
      }
    }
    const std::span<const std::uint32_t> rest = std::span(looked_).subspan(next_, end_ - next_);
    const auto mark = std::ranges::find_if(rest, [](std::uint32_t slot) { return (slot & kMarks) != 0; });
    const auto items = static_cast<std::uint32_t>(mark - rest.begin());
    if (items > 0) {
      next_ += items;
      slots = rest.first(items);
      return Taken::kItems;
    }
    ++next_;
    const std::uint32_t slot = *mark & ~kMarks;
    release(std::span(&slot, 1));
    announce_released();
    if ((*mark & kPassEnd) != 0) {
      ++pass_ends_taken_;
      return Taken::kPassEnd;
    }
  }
}

Outcome SlotPool::await_items(std::uint64_t items, Deadline deadline) {
  const auto urgent = [this] {
    return waiting_.load_acquire() > 0 || closed() || pass_ends_.load_acquire() > pass_ends_taken_;
  };
  const std::uint64_t taken = filled_.taken();
  const bool was_urgent = urgent();
  // known_ includes commits that are blocked by an older open ticket, so wait for at least one more.
  const std::uint64_t target = std::max(known_ + 1, was_urgent ? 0 : taken + items);
  return committed_.await(target, deadline, WaitStrategy::spin_then_sleep(), [&] {
    return stopped() || taken == end_ticket_.load_acquire() || (!was_urgent && urgent());
  });
}

// ---------------------------------------------------------------- release

// There is a cell for every slot, yet the ring can look full while a producer is suspended between claiming a cell and
// emptying it. That producer needs only a few more instructions, so yield to it.
void SlotPool::push_free(std::span<const std::uint32_t> slots) noexcept {
  while (!slots.empty()) {
    const std::uint32_t pushed = free_.try_push(slots);
    slots = slots.subspan(pushed);
    if (pushed == 0) {
      std::this_thread::yield();
    }
  }
}

void SlotPool::release(std::span<const std::uint32_t> slots) {
  if (slots.empty()) {
    return;
  }
  push_free(slots);
  if (unannounced_.fetch_add_acq_rel(slots.size()) + slots.size() >= announce_group_) {
    announce_released();
  }
}

void SlotPool::reset() {
  while (look()) {
  }
  end_ = next_ = 0;
  // Reservations refused after close() have advanced tickets_ beyond end_ticket_.
  const std::uint64_t end = end_ticket_.load_acquire();
  if (filled_.taken() != (end == kOpen ? tickets_.load_acquire() : end)) {
    throw std::logic_error("a pool with open reservations cannot be reset");
  }
  pass_ends_taken_ = pass_ends_.load_acquire();
  while (free_.try_pop(looked_) > 0) {
  }
  for (std::uint32_t first = 0; first < slots_; first += static_cast<std::uint32_t>(looked_.size())) {
    std::iota(looked_.begin(), looked_.end(), first);
    push_free(std::span(looked_).first(std::min<std::size_t>(looked_.size(), slots_ - first)));
  }
  unannounced_.store_relaxed(0);
  end_ticket_.store_release(kOpen);
  stopped_.store_release(0);
  tickets_.store_release(filled_.taken());
}

}  // namespace pyecho
