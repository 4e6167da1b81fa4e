#include "core/stage/feed.hpp"

#include <array>
#include <span>

namespace pyecho {

bool Feed::drain_into(Plan& plan) {
  std::array<std::uint32_t, 256> taken;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by try_pop
  for (bool fed = false;; fed = true) {
    std::uint32_t count = ring_.filled_.try_pop(taken);
    if (count == 0) {
      // Count first, then look again, so that every later commit ends the wait that follows.
      known_ = ring_.committed_.read();
      count = ring_.filled_.try_pop(taken);
    }
    if (count == 0) {
      // [C2] pairs with [C1]. A stop is no end.
      const bool drained = ring_.filled_.read_position() == ring_.rare_.end_ticket.load_acquire();
      return (drained && !ring_.stopped() && plan.end_input()) || fed;
    }
    for (const std::uint32_t entry : std::span(taken).first(count)) {
      if ((entry & SlotRing::kMarks) == 0) {
        if (skip_ == 0) {
          plan.feed(entry);
          continue;
        }
        --skip_;
        skipped_.fetch_add_acq_rel(1);
      }
      if ((entry & SlotRing::kPassEnd) != 0) {
        plan.end_pass();
        ring_.add_urgent(true);
      }
      const std::uint32_t slot = entry & ~SlotRing::kMarks;
      ring_.release(std::span(&slot, 1));
      ring_.announce_released();
    }
  }
}

void Feed::reset(const Replay& replay) {
  is_fresh(replay) ? ring_.reset() : ring_.reset(replay.free_slots());
  skip_ = 0;
}

}  // namespace pyecho
