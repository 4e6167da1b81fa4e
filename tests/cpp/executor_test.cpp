// The executor, one step at a time. No step may block, so a test that hangs here has found a blocking step.
#include "core/stage/executor.hpp"

#include <gtest/gtest.h>

#include "support/stage_parts.hpp"

namespace pyecho::test {
namespace {

TEST(Executor, plans_whole_batches_and_says_how_many_items_the_next_one_lacks) {
  StageParts parts({.slots = 8, .factor = 1.0}, 4);
  Batch* batch = nullptr;
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEmpty);
  EXPECT_EQ(parts.executor.needed(), 4U);
  parts.put(0, 5);
  ASSERT_EQ(parts.executor.plan(batch, true), Outcome::kOk);
  parts.executor.copy(*batch);
  EXPECT_EQ(parts.rows_of(*batch), (std::vector<Emission>{{0, 0}, {1, 0}, {2, 0}, {3, 0}}));
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEmpty);
  EXPECT_EQ(parts.executor.needed(), 3U);
}

TEST(Executor, needs_no_more_items_than_there_are_slots_for) {
  StageParts parts({.capacity = 2, .slots = 5, .factor = 1.0}, 16);
  Batch* batch = nullptr;
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEmpty);
  EXPECT_EQ(parts.executor.needed(), 5U);
  parts.put(0, 5);
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEmpty);
  EXPECT_EQ(parts.executor.view().resident(), 1U);
  EXPECT_EQ(parts.executor.needed(), 4U);
  EXPECT_EQ(parts.reserve_all(), 4U);
}

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

// Leaves of every size that has a way of its own to be copied, and more rows than are copied in one group.
TEST(Executor, rows_and_info_land_where_they_belong) {
  for (const bool stream : {false, true}) {
    StageParts parts({.capacity = 40, .slots = 40}, 70, 5, {8, 1, 2, 4, 100, 3000, 0}, stream);
    Batch* batch = nullptr;
    parts.put(0, 40);
    parts.pool.close();
    std::vector<Emission> rows;
    for (const std::size_t size : {70U, 10U}) {
      ASSERT_EQ(parts.executor.plan(batch, true), Outcome::kOk);
      parts.executor.copy(*batch);
      const std::vector<Emission> more = parts.rows_of(*batch);
      ASSERT_EQ(more.size(), size);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    expect_exact(Iterations{Batches{rows}}, 2.0, {40});
  }
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

TEST(Executor, without_a_block_it_is_exhausted_until_one_comes_back) {
  StageParts parts({.slots = 8}, 4, 1);
  Batch* held = nullptr;
  Batch* batch = nullptr;
  parts.put(0, 4);
  ASSERT_EQ(parts.executor.plan(held, true), Outcome::kOk);
  parts.executor.copy(*held);
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kExhausted);
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kExhausted);
  parts.batches->give_back(held, false);
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kOk);
}

TEST(Executor, tells_the_end_of_each_pass_and_then_that_it_has_finished) {
  StageParts parts({.slots = 8}, 4, 1);
  Batch* batch = nullptr;
  parts.put(0, 2);
  parts.pool.end_pass(parts.reserve());
  parts.pool.close();
  ASSERT_EQ(parts.executor.plan(batch, true), Outcome::kOk);
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEnd);  // found before a block is needed, and there is none
  EXPECT_FALSE(parts.executor.finished());
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEnd);
  EXPECT_TRUE(parts.executor.finished());
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kClosed);
}

TEST(Executor, after_a_stop_it_is_closed_until_it_begins_again) {
  StageParts parts({.slots = 8}, 4, 1);
  Batch* batch = nullptr;
  parts.put(0, 1);
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kEmpty);  // with half a batch
  parts.pool.stop();
  EXPECT_EQ(parts.executor.plan(batch, true), Outcome::kClosed);
  static_cast<void>(parts.executor.begin({.epoch = 1}));
  parts.pool.reset();
  parts.put(7, 9);
  ASSERT_EQ(parts.executor.plan(batch, true), Outcome::kOk);  // in the same block
  parts.executor.copy(*batch);
  EXPECT_EQ(parts.rows_of(*batch), (std::vector<Emission>{{7, 0}, {7, 1}, {8, 0}, {8, 1}}));
}

}  // namespace
}  // namespace pyecho::test
