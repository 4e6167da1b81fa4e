// Feeds a plan with the slots that producers have filled, in the order of their reservations. One thread at a time.
//
//     planner        while (!feed.drain_into(plan)) { feed.await(n, deadline, interrupted); }
//
// known_, skip_: the planner's alone. skipped_: written by it, read by any thread, relaxed, statistics.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/plan/plan.hpp"
#include "core/plan/replay.hpp"
#include "core/stage/slot_ring.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

class alignas(kCacheLineBytes) Feed {
 public:
  explicit Feed(SlotRing& ring) noexcept : ring_(ring) {}

  // Feeds the plan everything that is committed, in ticket order, and the end of the input once the ring is closed and
  // drained, and not stopped. Returns false if there was nothing. Never blocks.
  bool drain_into(Plan& plan);
  // Call after drain_into() returned false. Blocks until `items` more items have been committed than fed (kOk). Returns
  // early if the input was closed, stopped or halted, a pass ended, or interrupted() is true, which is asked after each
  // alert(). While a producer sleeps for a slot, returns at every commit. kTimeout if the deadline passed first.
  template <class Interrupted>
  Outcome await(std::uint64_t items, Deadline deadline, const Interrupted& interrupted) {
    const std::uint64_t fed = ring_.filled_.read_position();
    const bool was_urgent = urgent();
    // known_ includes commits that are blocked by an older open ticket, so wait for at least one more.
    const std::uint64_t target = std::max(known_ + 1, was_urgent ? 0 : fed + items);
    return ring_.committed_.await(target, deadline, WaitStrategy::spin_then_sleep(), [&] {
      return ring_.quiet() || fed == ring_.rare_.end_ticket.load_acquire() || (!was_urgent && urgent()) ||
             interrupted();
    });
  }
  // Any thread.
  void alert() { ring_.committed_.alert(); }
  // Drops the first items that are committed from now on, in the order of their tickets, as if they had been aborted.
  void skip(std::uint64_t items) noexcept { skip_ = items; }
  // Resets the ring to where a replay stands. No other thread may be inside. Throws as SlotRing::reset() does.
  void reset(const Replay& replay);
  // True if the replay was not run: it stands at the beginning of an epoch, and every slot is free.
  [[nodiscard]] static bool is_fresh(const Replay& replay) noexcept {
    return replay.free_slots().empty() && replay.plan().taken() == 0;
  }
  // Returns the number of items committed so far, over all resets, but those that were skipped. Any thread.
  [[nodiscard]] std::uint64_t committed() const noexcept {
    const std::uint64_t skipped = skipped_.load_acquire();  // read first, so that it never exceeds accepted()
    return ring_.accepted() - skipped;
  }

 private:
  [[nodiscard]] bool urgent() const noexcept { return ring_.calls_.urgent.load_acquire() > 0 || ring_.closed(); }

  SlotRing& ring_;
  std::uint64_t known_ = 0;  // committed_ of the ring at the last look
  std::uint64_t skip_ = 0;   // items still to drop
  Atomic<std::uint64_t> skipped_;
};

}  // namespace pyecho
