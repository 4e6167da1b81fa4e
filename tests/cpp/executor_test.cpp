// The executor, one step at a time. No step may block, so a test that hangs here has found a blocking step.
#include "core/stage/executor.hpp"

#include <gtest/gtest.h>

#include "support/stage_parts.hpp"

namespace pyecho::test {
namespace {

// Otherwise a producer without a slot would wait for a batch that waits for an item.
TEST(Executor, while_an_item_is_missing_it_copies_what_is_planned_and_gives_slots_back) {
  StageParts parts({.slots = 3, .factor = 1.0}, 4);
  Batch* batch = nullptr;
  parts.put(0, 3);
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEmpty);
  parts.put(3, 5);
  ASSERT_EQ(parts.executor.plan(batch, true), Outcome::kOk);
  EXPECT_EQ(batch->copied, 3U);
  EXPECT_EQ(parts.reserve_all(), 1U);
  parts.executor.copy(*batch);
  EXPECT_EQ(parts.rows_of(*batch), (std::vector<Emission>{{0, 0}, {1, 0}, {2, 0}, {3, 0}}));
  EXPECT_EQ(parts.reserve_all(), 1U);
}

TEST(Executor, slots_come_back_in_the_order_of_the_batches) {
  StageParts parts({.slots = 8, .factor = 3.0}, 2);
  const auto plan = [&] {
    Batch* batch = nullptr;
    EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kOk);
    return batch;
  };
  parts.put(0, 6);
  EXPECT_EQ(parts.reserve_all(), 2U);
  Batch* const first = plan();
  Batch* const second = plan();  // with the last use of item 0
  Batch* const third = plan();   // of item 1
  parts.executor.copy(*third);
  parts.executor.copy(*second);
  EXPECT_EQ(parts.reserve_all(), 0U);  // earlier uses are still to be copied
  parts.executor.copy(*first);
  EXPECT_EQ(parts.reserve_all(), 2U);
  EXPECT_EQ(parts.rows_of(*first), (std::vector<Emission>{{0, 0}, {0, 1}}));
  EXPECT_EQ(parts.rows_of(*second), (std::vector<Emission>{{0, 2}, {1, 0}}));
  EXPECT_EQ(parts.rows_of(*third), (std::vector<Emission>{{1, 1}, {1, 2}}));
  parts.executor.copy(*plan());  // two uses of item 2, and then the last one
  EXPECT_EQ(parts.reserve_all(), 0U);
  parts.executor.copy(*plan());
  EXPECT_EQ(parts.reserve_all(), 1U);
}

}  // namespace
}  // namespace pyecho::test
