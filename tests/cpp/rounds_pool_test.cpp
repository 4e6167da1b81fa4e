#include "core/plan/rounds_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"

namespace pyecho::test {
namespace {

PlanConfig config_of(std::uint32_t capacity, std::uint32_t min_uses, std::uint32_t max_uses, std::uint32_t rows) {
  return {.capacity = capacity,
          .slots = 2 * capacity,
          .factor = static_cast<double>(max_uses),
          .min_uses = min_uses,
          .batch_rows = rows};
}

// Admits the items of these numbers, each in the slot of its number.
void admit(RoundsPool& pool, std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t slot = first; slot < end; ++slot) {
    pool.admit({.slot = slot, .source_index = slot, .uses = 9});
  }
}

// Draws a batch and returns its slots.
std::vector<std::uint32_t> batch_of(RoundsPool& pool, std::uint32_t rows, Xoshiro256& random) {
  std::vector<Use> uses(rows);
  pool.begin_draws(rows);
  uses.resize(pool.draw(uses, random));
  std::vector<std::uint32_t> slots;
  std::ranges::transform(uses, std::back_inserter(slots), &Use::slot);
  return slots;
}

// Draws so many batches, and returns the uses of each slot.
std::map<std::uint32_t, int> uses_in(int batches, RoundsPool& pool, std::uint32_t rows, Xoshiro256& random) {
  std::map<std::uint32_t, int> uses;
  for (; batches > 0; --batches) {
    for (const std::uint32_t slot : batch_of(pool, rows, random)) {
      ++uses[slot];
    }
    pool.begin_batch();
  }
  return uses;
}

std::vector<std::uint32_t> left_by(RoundsPool& pool) { return std::exchange(pool.left(), {}); }

TEST(RoundsPool, every_item_is_drawn_once_before_any_is_drawn_again) {
  RoundsPool pool(config_of(12, 1, 5, 4));
  Xoshiro256 random(7);
  pool.begin_batch();
  admit(pool, 0, 12);
  for (int round = 0; round < 4; ++round) {
    std::set<std::uint32_t> drawn;
    for (int batch = 0; batch < 3; ++batch) {
      const std::vector<std::uint32_t> slots = batch_of(pool, 4, random);
      drawn.insert(slots.begin(), slots.end());
      pool.begin_batch();
    }
    EXPECT_EQ(drawn.size(), 12U);
  }
  EXPECT_TRUE(pool.suffices(12));
  EXPECT_FALSE(pool.suffices(13)) << "each has one use left";
}

TEST(RoundsPool, for_a_new_item_the_one_with_the_most_uses_leaves_and_of_those_the_oldest) {
  RoundsPool pool(config_of(3, 1, 9, 3));
  Xoshiro256 random(1);
  pool.begin_batch();
  admit(pool, 0, 2);
  EXPECT_EQ(batch_of(pool, 2, random).size(), 2U);  // slots 0 and 1 have a use
  pool.begin_batch();
  admit(pool, 2, 3);
  EXPECT_FALSE(pool.left().size() > 0);
  EXPECT_EQ(batch_of(pool, 3, random).size(), 3U);  // 2, 2, 1
  pool.begin_batch();
  admit(pool, 3, 4);
  EXPECT_EQ(left_by(pool), std::vector<std::uint32_t>{0});
  admit(pool, 4, 5);
  EXPECT_EQ(left_by(pool), std::vector<std::uint32_t>{1});
  admit(pool, 5, 6);
  EXPECT_EQ(left_by(pool), std::vector<std::uint32_t>{2});
  EXPECT_FALSE(pool.has_room()) << "nobody has had a use";
}

TEST(RoundsPool, an_item_that_is_due_can_be_drawn_again_in_the_next_batch) {
  RoundsPool pool(config_of(4, 3, 3, 2));
  Xoshiro256 random(5);
  pool.begin_batch();
  admit(pool, 0, 4);
  std::map<std::uint32_t, int> uses;
  for (int batch = 0; batch < 6; ++batch) {
    const std::map<std::uint32_t, int> drawn = uses_in(1, pool, 2, random);
    EXPECT_EQ(drawn.size(), 2U) << "of two items";
    for (const auto& [slot, count] : drawn) {
      uses[slot] += count;
    }
  }
  EXPECT_EQ(pool.resident(), 0U);
  EXPECT_EQ(uses, (std::map<std::uint32_t, int>{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
}

TEST(RoundsPool, an_item_that_was_drawn_twice_in_a_batch_stays_while_it_has_uses_left) {
  RoundsPool pool(config_of(8, 2, 8, 8));
  Xoshiro256 random(1);
  pool.begin_batch();
  admit(pool, 0, 4);
  const std::map<std::uint32_t, int> uses = uses_in(4, pool, 8, random);
  EXPECT_TRUE(left_by(pool).empty());
  EXPECT_EQ(uses, (std::map<std::uint32_t, int>{{0, 8}, {1, 8}, {2, 8}, {3, 8}}));
}

TEST(RoundsPool, an_item_that_is_too_old_leaves_once_it_has_had_its_least_uses) {
  PlanConfig config = config_of(4, 2, 9, 1);
  config.max_age = 3;
  RoundsPool pool(config);
  Xoshiro256 random(2);
  pool.begin_batch();
  admit(pool, 0, 1);
  for (int batch = 0; batch < 2; ++batch) {
    EXPECT_EQ(batch_of(pool, 1, random), std::vector<std::uint32_t>{0});
    pool.begin_batch();
  }
  admit(pool, 1, 2);
  EXPECT_TRUE(left_by(pool).empty());
  pool.begin_batch();
  EXPECT_EQ(left_by(pool), std::vector<std::uint32_t>{0});
  pool.begin_batch();
  pool.begin_batch();
  EXPECT_TRUE(left_by(pool).empty()) << "item 1 has not had its two uses";
  for (int use = 0; use < 2; ++use) {
    EXPECT_EQ(batch_of(pool, 1, random), std::vector<std::uint32_t>{1});
    pool.begin_batch();
  }
  EXPECT_EQ(left_by(pool), std::vector<std::uint32_t>{1});
}

TEST(RoundsPool, at_the_end_of_the_input_only_the_least_uses_are_drawn) {
  RoundsPool pool(config_of(4, 2, 9, 2));
  Xoshiro256 random(3);
  pool.begin_batch();
  admit(pool, 0, 4);
  EXPECT_EQ(batch_of(pool, 2, random).size(), 2U);
  pool.begin_batch();
  pool.drain();
  std::size_t drawn = 0;
  while (pool.resident() > 0) {
    drawn += batch_of(pool, 2, random).size();
    pool.begin_batch();
  }
  EXPECT_EQ(drawn, 6U);
}

// ---------------------------------------------------------------- with a plan

// Runs a plan over an input: the items of all batches, by their numbers in the source.
class AdaptiveRun {
 public:
  explicit AdaptiveRun(PlanConfig config) : plan_(config), uses_(config.batch_rows) {
    for (std::uint32_t slot = 0; slot < config.slots; ++slot) {
      free_.push_back(slot);
    }
    plan_.begin(0, {});
  }

  void feed(std::size_t count) {
    for (; count > 0 && !free_.empty(); --count) {
      plan_.feed(free_.back());
      free_.pop_back();
    }
  }
  // Draws a batch if there is one.
  Outcome batch(bool awaited = true) {
    std::uint32_t drawn = 0;
    const Outcome outcome = plan_.draw(uses_, drawn, awaited);
    plan_.take_left(
        [&](std::span<const std::uint32_t> slots) { free_.insert(free_.end(), slots.begin(), slots.end()); });
    for (const Use& use : std::span(uses_).first(drawn)) {
      items.push_back(use.source_index);
      if (use.last) {
        free_.push_back(use.slot);
      }
    }
    if (drawn > 0) {
      plan_.end_batch();
      return Outcome::kOk;
    }
    return outcome;
  }

  [[nodiscard]] Plan& plan() { return plan_; }
  std::vector<std::uint64_t> items;

 private:
  Plan plan_;
  std::vector<Use> uses_;
  std::vector<std::uint32_t> free_;
};

TEST(AdaptivePlan, a_source_that_keeps_up_has_the_least_uses_and_one_that_stops_the_most) {
  AdaptiveRun run(config_of(8, 2, 5, 4));
  for (int batch = 0; batch < 100; ++batch) {
    run.feed(8);
    ASSERT_EQ(run.batch(), Outcome::kOk);
  }
  std::map<std::uint64_t, int> uses;
  for (const std::uint64_t item : run.items) {
    EXPECT_LE(++uses[item], 2);
  }
  while (run.batch() == Outcome::kOk) {  // the source stops
  }
  uses.clear();
  for (const std::uint64_t item : run.items) {
    ++uses[item];
  }
  for (const auto& [item, used] : uses) {
    EXPECT_LE(used, 5) << item;
  }
  EXPECT_LT(run.plan().resident(), 4U) << "fewer uses are left than a batch has";
  EXPECT_EQ(run.plan().min_items(4), 8 - run.plan().resident()) << "the pool fills again before it goes on";
}

TEST(AdaptivePlan, a_batch_that_nobody_waits_for_is_made_of_fresh_items_only) {
  AdaptiveRun run(config_of(4, 1, 6, 4));
  run.feed(4);
  EXPECT_EQ(run.batch(false), Outcome::kOk);
  run.feed(3);
  EXPECT_EQ(run.batch(false), Outcome::kEmpty) << "three fresh items, and repeats could fill the batch";
  EXPECT_EQ(run.plan().min_items(4), 1U);
  run.feed(1);
  EXPECT_EQ(run.batch(false), Outcome::kOk);
  EXPECT_EQ(std::set(run.items.begin(), run.items.end()).size(), 8U);
  EXPECT_EQ(run.batch(false), Outcome::kEmpty);
  EXPECT_EQ(run.plan().min_items(4), 4U) << "no item is worth a look before that";
  EXPECT_EQ(run.batch(true), Outcome::kOk) << "somebody waits now";
}

TEST(AdaptivePlan, the_log_gives_the_same_draws_whenever_items_come) {
  const PlanConfig config = config_of(8, 1, 6, 4);
  AdaptiveRun live(config);
  std::size_t fed = 8;
  live.feed(fed);
  for (int batch = 0; batch < 50; ++batch) {
    ASSERT_EQ(live.batch(), Outcome::kOk);
    const std::size_t more = batch % 7;
    live.feed(more);
  }
  PlanConfig replaying = config;
  replaying.replay[0] = live.plan().decisions();
  AdaptiveRun again(replaying);
  while (again.items.size() < live.items.size()) {
    if (again.batch() == Outcome::kEmpty) {
      again.feed(1);
    }
  }
  EXPECT_EQ(again.items, live.items);
  EXPECT_EQ(again.plan().decisions(), live.plan().decisions());
  EXPECT_FALSE(again.plan().diverged());
}

TEST(AdaptivePlan, a_log_stays_as_it_was_while_more_is_decided) {
  AdaptiveRun run(config_of(8, 1, 6, 4));
  run.feed(8);
  Decisions last;
  for (std::size_t batch = 0; batch < 200; ++batch) {
    ASSERT_EQ(run.batch(), Outcome::kOk);
    run.feed(4);
    const Decisions decisions = run.plan().decisions();
    ASSERT_EQ(decisions.size(), batch + 1);
    ASSERT_TRUE(std::ranges::equal(last, std::span(decisions).first(batch)));
    last = decisions;
  }
}

TEST(AdaptivePlan, a_log_of_another_run_is_noticed) {
  PlanConfig config = config_of(4, 1, 6, 4);
  config.replay[0] = Decisions({4, 3, 5});  // at most 4 items can leave
  AdaptiveRun run(config);
  for (int batch = 0; batch < 2; ++batch) {
    run.feed(8);
    ASSERT_EQ(run.batch(), Outcome::kOk);
    ASSERT_FALSE(run.plan().diverged());
  }
  run.feed(8);
  EXPECT_EQ(run.batch(), Outcome::kEmpty);
  run.feed(8);
  EXPECT_EQ(run.batch(), Outcome::kOk);
  EXPECT_TRUE(run.plan().diverged());
}

TEST(AdaptivePlan, its_configuration_is_checked) {
  EXPECT_THROW(Plan{config_of(4, 3, 2, 2)}, std::invalid_argument);
  EXPECT_THROW(Plan{config_of(4, 1, 2, 5)}, std::invalid_argument);
  PlanConfig fraction = config_of(4, 1, 2, 2);
  fraction.factor = 2.5;
  EXPECT_THROW(Plan{fraction}, std::invalid_argument);
}

}  // namespace
}  // namespace pyecho::test
