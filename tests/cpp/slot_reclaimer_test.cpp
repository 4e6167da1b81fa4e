#include "core/memory/slot_reclaimer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace pyecho::test {
namespace {

using Slots = std::vector<std::uint32_t>;
using Released = std::set<std::uint32_t>;

TEST(SlotReclaimer, the_front_gives_back_at_once_and_later_batches_wait_for_it) {
  SlotPool pool(12, 1);
  SlotReclaimer reclaimer(pool, 3, 4);
  // Returns the slots released since the last call, and reserves them again.
  const auto released = [&] {
    Released slots;
    for (Reservation reservation{}; pool.try_reserve(reservation) == Outcome::kOk;) {
      EXPECT_TRUE(slots.insert(reservation.slot).second);
    }
    return slots;
  };
  EXPECT_EQ(released().size(), 12U);
  reclaimer.copied(0, Slots{5}, false);
  EXPECT_EQ(released(), (Released{5}));
  reclaimer.copied(2, Slots{4}, true);
  reclaimer.copied(1, Slots{1}, false);
  reclaimer.copied(1, Slots{3}, false);
  EXPECT_EQ(released(), Released{});
  reclaimer.copied(0, Slots{0}, true);
  EXPECT_EQ(released(), (Released{0, 1, 3}));  // batch 1 is the front, and continues
  reclaimer.copied(1, Slots{8}, true);
  EXPECT_EQ(released(), (Released{4, 8}));
  reclaimer.copied(5, Slots{11}, true);
  reclaimer.copied(4, Slots{10}, true);
  reclaimer.copied(3, Slots{9}, true);
  EXPECT_EQ(released(), (Released{9, 10, 11}));
  reclaimer.copied(7, Slots{7}, true);
  reclaimer.reset(8);
  reclaimer.copied(8, Slots{6}, true);
  EXPECT_EQ(released(), (Released{6}));  // the parked slots are forgotten
}

}  // namespace
}  // namespace pyecho::test
