#include "core/memory/slot_reclaimer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace pyecho::test {
namespace {

using Slots = std::vector<std::uint32_t>;
using Released = std::set<std::uint32_t>;

class SlotReclaimerTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBatches = 3;

  SlotReclaimerTest() : pool_(12, 1), reclaimer_(pool_, kBatches, 4) { static_cast<void>(released()); }

  // The slots given back since the last call, which are in use again.
  Released released() {
    Released slots;
    for (Reservation reservation{}; pool_.try_reserve(reservation) == Outcome::kOk;) {
      EXPECT_TRUE(slots.insert(reservation.slot).second);
    }
    return slots;
  }

  SlotPool pool_;
  SlotReclaimer reclaimer_;
};

TEST_F(SlotReclaimerTest, the_front_gives_back_at_once_and_later_batches_wait_for_it) {
  reclaimer_.copied(0, Slots{5}, false);
  EXPECT_EQ(released(), (Released{5}));
  reclaimer_.copied(2, Slots{4}, true);
  reclaimer_.copied(1, Slots{1}, false);
  reclaimer_.copied(1, Slots{3}, false);
  EXPECT_EQ(released(), Released{});
  reclaimer_.copied(0, Slots{0}, true);
  EXPECT_EQ(released(), (Released{0, 1, 3}));  // batch 1 is the front, and goes on
  reclaimer_.copied(1, Slots{8}, true);
  EXPECT_EQ(released(), (Released{4, 8}));
  reclaimer_.copied(3, Slots{9}, false);
  EXPECT_EQ(released(), (Released{9}));
}

TEST_F(SlotReclaimerTest, every_batch_may_be_whole_before_the_front_is) {
  for (std::uint64_t first = 0; first < 4 * kBatches; first += kBatches) {
    reclaimer_.copied(first + 2, Slots{2}, true);
    reclaimer_.copied(first + 1, Slots{1}, true);
    EXPECT_EQ(released(), Released{});
    reclaimer_.copied(first, Slots{0}, true);
    EXPECT_EQ(released(), (Released{0, 1, 2}));
  }
}

TEST_F(SlotReclaimerTest, reset_forgets_what_is_parked) {
  reclaimer_.copied(1, Slots{1}, true);
  reclaimer_.reset(4);
  EXPECT_EQ(released(), Released{});
  reclaimer_.copied(4, Slots{4}, true);
  EXPECT_EQ(released(), (Released{4}));
}

}  // namespace
}  // namespace pyecho::test
