// unique_in_batch: no item twice in a batch, and still every use of every item.
#include <gtest/gtest.h>

#include <set>

#include "core/plan/planner.hpp"
#include "support/drive_planner.hpp"

namespace pyecho::test {
namespace {

void expect_unique(const Batches& batches) {
  for (const auto& batch : batches) {
    std::set<std::uint64_t> items;
    for (const Emission& emission : batch) {
      ASSERT_TRUE(items.insert(emission.item).second) << "item " << emission.item << " twice";
    }
  }
}

TEST(PlannerUnique, no_batch_has_an_item_twice_and_none_is_lost) {
  for (const std::uint32_t rows : {1U, 2U, 5U, 8U}) {
    for (const std::uint32_t capacity : {rows, rows + 1, 3 * rows}) {
      for (const double factor : {1.0, 2.0, 2.5, 9.0}) {
        for (const std::uint64_t items : {1ULL, 4ULL, 8ULL, 100ULL}) {
          const PlannerConfig config{
              .capacity = capacity, .slots = capacity + 1, .factor = factor, .seed = items, .unique_in_batch = true};
          const Batches batches = drive_planner(config, items, rows);
          expect_unique(batches);
          expect_exact(batches, config, items);
        }
      }
    }
  }
}

TEST(PlannerUnique, batches_are_whole_until_the_pool_drains) {
  const PlannerConfig config{.capacity = 8, .slots = 8, .factor = 4.0, .seed = 3, .unique_in_batch = true};
  const std::uint64_t items = 200;
  const Batches batches = drive_planner(config, items, 8);
  std::uint64_t emitted = 0;
  for (const auto& batch : batches) {
    if (emitted + 8 * 4 * 2 < items * 4) {
      ASSERT_EQ(batch.size(), 8U);
    }
    emitted += batch.size();
  }
}

TEST(PlannerUnique, one_item_alone_comes_once_a_batch) {
  const PlannerConfig config{.capacity = 4, .slots = 4, .factor = 3.0, .unique_in_batch = true};
  const Batches expected{{{0, 0}}, {{0, 1}}, {{0, 2}}};
  EXPECT_EQ(drive_planner(config, 1, 4), expected);
}

TEST(PlannerUnique, a_pool_of_one_emits_one_a_batch) {
  const PlannerConfig config{.capacity = 1, .slots = 1, .factor = 2.0, .unique_in_batch = true};
  const Batches expected{{{0, 0}}, {{0, 1}}, {{1, 0}}, {{1, 1}}};
  EXPECT_EQ(drive_planner(config, 2, 1), expected);
}

// A slot that was emptied may bring the next item into the same batch.
TEST(PlannerUnique, a_slot_may_carry_two_items_in_one_batch) {
  const PlannerConfig config{.capacity = 3, .slots = 3, .factor = 1.0, .unique_in_batch = true};
  const Batches batches = drive_planner(config, 60, 3);  // three slots, so every batch reuses some
  expect_unique(batches);
  expect_exact(batches, config, 60);
  for (const auto& batch : batches) {
    EXPECT_EQ(batch.size(), 3U);
  }
}

TEST(PlannerUnique, the_first_item_of_a_batch_is_uniform_over_remaining_uses) {
  std::vector<int> counts(6);
  constexpr int kTrials = 6000;
  for (std::uint64_t seed = 0; seed < kTrials; ++seed) {
    const PlannerConfig config{.capacity = 6, .slots = 6, .factor = 2.0, .seed = seed, .unique_in_batch = true};
    ++counts[drive_planner(config, 6, 3).front().front().item];
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, kTrials / 6, 130);
  }
}

TEST(PlannerUnique, it_is_a_function_of_the_seed) {
  const auto draws = [](std::uint64_t seed) {
    return drive_planner({.capacity = 9, .slots = 9, .factor = 2.5, .seed = seed, .unique_in_batch = true}, 50, 6);
  };
  EXPECT_EQ(draws(4), draws(4));
  EXPECT_NE(draws(4), draws(5));
}

}  // namespace
}  // namespace pyecho::test
