#include "core/stage/slot_pool.hpp"

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
  if (slots < 1 || slots > SlotPool::kMaxSlots) {
    throw std::invalid_argument("a pool has 1 to 2^30 - 1 slots, not " + std::to_string(slots));
  }
  return slots;
}

}  // namespace

SlotPool::SlotPool(std::uint32_t slots, std::uint32_t ahead, std::uint32_t spare, bool streamed)
    : limits_{.slots = checked(slots),
              .spare = spare,
              .announce_group = std::max(1U, ahead / kAnnounceParts),
              .streamed = streamed},
      free_(slots),
      filled_(slots) {
  reset();
}

// ---------------------------------------------------------------- producers

Outcome SlotPool::try_reserve(std::span<Reservation> wanted, std::uint32_t& count) noexcept {
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

Outcome SlotPool::reserve(Reservation& reservation, Deadline deadline) {
  for (;;) {
    // Read before the attempt, so that a release between the two ends the wait below at once.
    const std::uint64_t seen = released_.read();
    if (const Outcome outcome = try_reserve(reservation); outcome != Outcome::kFull) {
      return outcome;
    }
    if (halted()) {
      return Outcome::kHalted;
    }
    if (Clock::now() >= deadline) {
      return Outcome::kTimeout;
    }
    // The planner may be sleeping until many items are committed, but it can free slots with the few there are.
    if (urgent_.fetch_add_acq_rel(1) == 0) {
      committed_.alert();
    }
    static_cast<void>(released_.await(seen + 1, deadline, WaitStrategy::spin_then_sleep(),
                                      [this] { return closed() || stopped() || halted(); }));
    urgent_.fetch_add_acq_rel(static_cast<std::uint32_t>(-1));
  }
}

void SlotPool::await_resumed(Deadline deadline) {
  // An alert ends it: no count is ever reached.
  static_cast<void>(released_.await(std::numeric_limits<std::uint64_t>::max() - 1, deadline, WaitStrategy::sleep(),
                                    [this] { return !halted() || closed() || stopped(); }));
}

void SlotPool::commit(std::span<const Reservation> reservations) {
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

void SlotPool::publish_mark(Reservation reservation, std::uint32_t mark) {
  if (forked()) {
    return;
  }
  if (limits_.streamed) {
    stream_fence();  // because the next producer of the slot overwrites it
  }
  if (mark == kPassEnd) {
    urgent_.fetch_add_acq_rel(1);
  }
  filled_.publish(reservation.ticket, reservation.slot | mark);
  committed_.advance();
  not_items_.fetch_add_acq_rel(1);  // after committed_, see committed()
  if (mark == kPassEnd) {
    committed_.alert();  // an iteration may end here, and the next item may come much later
  }
}

void SlotPool::close() {
  if (forked()) {
    return;
  }
  const std::uint64_t tickets = tickets_.fetch_or_acq_rel(kClosedBit);
  if ((tickets & kClosedBit) == 0) {
    end_ticket_.store_release(tickets);  // [C1] pairs with [C2]
  }
  committed_.alert();
  released_.alert();
}

void SlotPool::stop() {
  if (forked()) {
    return;
  }
  stopped_.store_release(1);
  close();
}

void SlotPool::set_halted(bool halted) {
  if (forked()) {
    return;
  }
  halted_.store_release(halted ? 1 : 0);
  committed_.alert();
  released_.alert();
}

// ---------------------------------------------------------------- planner

bool SlotPool::feed(Plan& plan) {
  std::array<std::uint32_t, 256> taken;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by try_pop
  for (bool fed = false;; fed = true) {
    std::uint32_t count = filled_.try_pop(taken);
    if (count == 0) {
      // Count first, then look again, so that every later commit ends the wait that follows.
      known_ = committed_.read();
      count = filled_.try_pop(taken);
    }
    if (count == 0) {
      const bool drained = filled_.read_position() == end_ticket_.load_acquire();  // [C2] pairs with [C1]
      return (drained && !stopped() && plan.end_input()) || fed;                   // a stop is no end
    }
    for (const std::uint32_t entry : std::span(taken).first(count)) {
      if ((entry & kMarks) == 0) {
        if (skip_ == 0) {
          plan.feed(entry);
          continue;
        }
        --skip_;
        skipped_.fetch_add_acq_rel(1);
      }
      if ((entry & kPassEnd) != 0) {
        plan.end_pass();
        urgent_.fetch_add_acq_rel(static_cast<std::uint32_t>(-1));
      }
      const std::uint32_t slot = entry & ~kMarks;
      release(std::span(&slot, 1));
      announce_released();
    }
  }
}

Outcome SlotPool::await_items(std::uint64_t items, Deadline deadline, std::uint64_t seen, bool takes) {
  const auto urgent = [this] { return urgent_.load_acquire() > 0 || closed(); };
  const std::uint64_t fed = filled_.read_position();
  const bool was_urgent = urgent();
  // known_ includes commits that are blocked by an older open ticket, so wait for at least one more.
  const std::uint64_t target = std::max(known_ + 1, was_urgent ? 0 : fed + items);
  return committed_.await(target, deadline, WaitStrategy::spin_then_sleep(), [&] {
    const std::uint64_t waits = awaits();
    return stopped() || halted() || fed == end_ticket_.load_acquire() || (!was_urgent && urgent()) ||
           ((takes || waits % 2 == 1) && waits != seen);
  });
}

void SlotPool::set_awaited(bool awaited) {
  const std::uint64_t waits = awaits_.load_relaxed();
  const bool awaited_before = waits % 2 == 1;
  if (!awaited || !awaited_before) {
    awaits_.store_release(waits + (awaited == awaited_before ? 2 : 1));
    committed_.alert();
  }
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

// Takes at most so many slots out of the cycle, as long as too many are in it. Returns how many.
std::size_t SlotPool::withhold(std::size_t count) noexcept {
  std::uint32_t surplus = surplus_.load_relaxed();
  std::uint32_t taken = 0;
  do {
    taken = static_cast<std::uint32_t>(std::min<std::size_t>(count, surplus));
  } while (taken > 0 && !surplus_.try_claim_relaxed(surplus, surplus - taken));
  return taken;
}

void SlotPool::release(std::span<const std::uint32_t> slots) {
  slots = slots.subspan(withhold(slots.size()));
  if (slots.empty()) {
    return;
  }
  push_free(slots);
  if (unannounced_.fetch_add_acq_rel(slots.size()) + slots.size() >= limits_.announce_group) {
    announce_released();
  }
}

void SlotPool::reset() {
  drain();
  surplus_.store_relaxed(0);
  std::array<std::uint32_t, 256> slots;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  for (std::uint32_t first = 0; first < cycle(); first += static_cast<std::uint32_t>(slots.size())) {
    std::iota(slots.begin(), slots.end(), first);
    push_free(std::span(slots).first(std::min<std::size_t>(slots.size(), cycle() - first)));
  }
  open(false);
}

void SlotPool::reset_halted(std::span<const std::uint32_t> free) {
  drain();
  surplus_.store_relaxed(limits_.spare);
  push_free(free.subspan(withhold(free.size())));
  open(true);
}

void SlotPool::drain() {
  if (open_reservations() > 0) {
    throw std::logic_error("a pool with open reservations cannot be reset");
  }
  std::array<std::uint32_t, 256> slots;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  while (filled_.try_pop(slots) > 0) {
  }
  while (free_.try_pop(slots) > 0) {
  }
}

void SlotPool::open(bool halted) {
  skip_ = 0;
  urgent_.store_relaxed(0);
  unannounced_.store_relaxed(0);
  end_ticket_.store_release(kOpen);
  stopped_.store_release(0);
  halted_.store_release(halted ? 1 : 0);
  tickets_.store_release(filled_.read_position());
}

}  // namespace pyecho
