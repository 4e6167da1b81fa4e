#include "core/stage/slot_ring.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

namespace pyecho {
namespace {

// Early enough for a producer to run before the planner has used up the rest, but not for every slot, because each
// wake-up costs the waking thread time.
constexpr std::uint32_t kAnnounceParts = 4;

std::uint32_t checked(std::uint32_t slots) {
  if (slots < 1 || slots > SlotRing::kMaxSlots) {
    throw std::invalid_argument("a ring has 1 to 2^30 - 1 slots, not " + std::to_string(slots));
  }
  return slots;
}

}  // namespace

SlotRing::SlotRing(std::uint32_t slots, std::uint32_t ahead, std::uint32_t spare, bool streamed)
    : limits_{.slots = checked(slots),
              .spare = spare,
              .announce_group = std::max(1U, ahead / kAnnounceParts),
              .streamed = streamed},
      free_(slots),
      filled_(slots) {
  reset();
}

// ---------------------------------------------------------------- producers

Outcome SlotRing::try_reserve(std::span<Reservation> wanted, std::uint32_t& count) noexcept {
  count = 0;
  if (forked()) {
    return Outcome::kForked;
  }
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

Outcome SlotRing::reserve(std::span<Reservation> wanted, std::uint32_t& count, Deadline deadline) {
  for (;;) {
    // Read before the attempt, so that a release between the two ends the wait below at once.
    const std::uint64_t seen = released_.read();
    if (const Outcome outcome = try_reserve(wanted, count); outcome != Outcome::kFull) {
      return outcome;
    }
    if (halted()) {
      return Outcome::kHalted;
    }
    if (Clock::now() >= deadline) {
      return Outcome::kTimeout;
    }
    // The planner may be sleeping until many items are committed, but it can free slots with the few there are.
    if (add_urgent(false) == 0) {
      committed_.alert();
    }
    static_cast<void>(released_.await(seen + 1, deadline, WaitStrategy::spin_then_sleep(),
                                      [this] { return closed() || stopped() || halted(); }));
    add_urgent(true);
  }
}

void SlotRing::await_resumed(Deadline deadline) {
  // An alert ends it: no count is ever reached.
  static_cast<void>(released_.await(std::numeric_limits<std::uint64_t>::max() - 1, deadline, WaitStrategy::sleep(),
                                    [this] { return !halted() || closed() || stopped(); }));
}

void SlotRing::commit(std::span<const Reservation> reservations) {
  if (forked()) {
    return;
  }
  if (limits_.streamed) {
    stream_fence();
  }
  for (const Reservation& reservation : reservations) {
    filled_.publish(reservation.ticket, reservation.slot);
  }
  committed_.advance(reservations.size());
}

void SlotRing::publish_mark(Reservation reservation, std::uint32_t mark) {
  if (forked()) {
    return;
  }
  if (limits_.streamed) {
    stream_fence();  // because the next producer of the slot overwrites it
  }
  if (mark == kPassEnd) {
    add_urgent(false);
  }
  filled_.publish(reservation.ticket, reservation.slot | mark);
  committed_.advance();
  calls_.not_items.fetch_add_acq_rel(1);  // after committed_, see accepted()
  if (mark == kPassEnd) {
    committed_.alert();  // an iteration may end here, and the next item may come much later
  }
}

void SlotRing::close() {
  if (forked()) {
    return;
  }
  const std::uint64_t tickets = tickets_.fetch_or_acq_rel(kClosedBit);
  if ((tickets & kClosedBit) == 0) {
    rare_.end_ticket.store_release(tickets);  // [C1] pairs with [C2]
  }
  committed_.alert();
  released_.alert();
}

void SlotRing::stop() {
  if (forked()) {
    return;
  }
  rare_.stopped.store_release(1);
  close();
}

void SlotRing::set_halted(bool halted) {
  if (forked()) {
    return;
  }
  rare_.halted.store_release(halted ? 1 : 0);
  committed_.alert();
  released_.alert();
}

// ---------------------------------------------------------------- release

// There is a cell for every slot, yet the ring can look full while a producer is suspended between claiming a cell and
// emptying it. That producer needs only a few more instructions, so yield to it.
void SlotRing::push_free(std::span<const std::uint32_t> slots) noexcept {
  while (!slots.empty()) {
    const std::uint32_t pushed = free_.try_push(slots);
    slots = slots.subspan(pushed);
    if (pushed == 0) {
      std::this_thread::yield();
    }
  }
}

// Takes at most so many slots out of the cycle, as long as too many are in it. Returns how many.
std::size_t SlotRing::withhold(std::size_t count) noexcept {
  std::uint32_t surplus = rare_.surplus.load_relaxed();
  std::uint32_t taken = 0;
  do {
    taken = static_cast<std::uint32_t>(std::min<std::size_t>(count, surplus));
  } while (taken > 0 && !rare_.surplus.try_claim_relaxed(surplus, surplus - taken));
  return taken;
}

void SlotRing::release(std::span<const std::uint32_t> slots) {
  slots = slots.subspan(withhold(slots.size()));
  if (slots.empty()) {
    return;
  }
  push_free(slots);
  if (unannounced_.fetch_add_acq_rel(slots.size()) + slots.size() >= limits_.announce_group) {
    announce_released();
  }
}

void SlotRing::reset() {
  drain();
  rare_.surplus.store_relaxed(0);
  std::array<std::uint32_t, 256> slots;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  for (std::uint32_t first = 0; first < cycle(); first += static_cast<std::uint32_t>(slots.size())) {
    std::iota(slots.begin(), slots.end(), first);
    push_free(std::span(slots).first(std::min<std::size_t>(slots.size(), cycle() - first)));
  }
  open();
}

void SlotRing::reset(std::span<const std::uint32_t> free) {
  drain();
  rare_.surplus.store_relaxed(limits_.spare);
  push_free(free.subspan(withhold(free.size())));
  open();
}

void SlotRing::drain() {
  if (open_reservations() > 0) {
    throw std::logic_error("a ring with open reservations cannot be reset");
  }
  std::array<std::uint32_t, 256> slots;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  while (const std::uint32_t count = filled_.try_pop(slots)) {
    for (const std::uint32_t entry : std::span(slots).first(count)) {
      if ((entry & kPassEnd) != 0) {
        add_urgent(true);
      }
    }
  }
  while (free_.try_pop(slots) > 0) {
  }
}

void SlotRing::open() {
  unannounced_.store_relaxed(0);
  rare_.end_ticket.store_release(kOpen);
  rare_.stopped.store_release(0);
  rare_.halted.store_release(1);
  tickets_.store_release(filled_.read_position());
}

}  // namespace pyecho
