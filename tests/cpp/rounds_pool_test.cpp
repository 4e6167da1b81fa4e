#include "core/plan/rounds_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/plan/plan.hpp"
#include "support/chi_square.hpp"

namespace pyecho::test {
namespace {

PlanConfig config_of(std::uint32_t capacity, std::uint32_t min_uses, std::uint32_t max_uses, std::uint32_t rows) {
  return {.capacity = capacity,
          .slots = 2 * capacity,
          .factor = static_cast<double>(max_uses),
          .min_uses = min_uses,
          .batch_size = rows};
}

// Runs a plan over an input: the items of all batches, by their numbers in the source.
class AdaptiveRun {
 public:
  explicit AdaptiveRun(PlanConfig config) : plan_(config), uses_(config.batch_size) {
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

TEST(AdaptivePlan, a_log_stays_as_it_was_while_more_is_decided) {
  AdaptiveRun run(config_of(8, 1, 6, 4));
  run.feed(8);
  Decisions last;
  for (std::size_t batch = 0; batch < 200; ++batch) {
    ASSERT_EQ(run.batch(), Outcome::kOk);
    run.feed(4);
    const Decisions decisions = run.plan().position(0, batch + 1).decisions;
    ASSERT_EQ(decisions.size(), batch + 1);
    ASSERT_TRUE(std::ranges::equal(last, std::span(decisions).first(batch)));
    last = decisions;
  }
}

TEST(AdaptivePlan, a_log_of_another_run_is_noticed) {
  PlanConfig config = config_of(4, 1, 6, 4);
  config.replay = std::make_shared<const DecisionLog>(DecisionLog{{{}, {4, 3, 5}}});  // at most 4 items can leave
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

TEST(AdaptivePlan, a_batch_admits_every_item_that_has_arrived) {
  AdaptiveRun run(config_of(16, 1, 6, 4));
  run.feed(10);
  EXPECT_EQ(run.batch(), Outcome::kOk);
  EXPECT_EQ(run.plan().resident(), 10U);
}

TEST(AdaptivePlan, each_place_of_a_round_draws_every_item_equally_often) {
  constexpr std::uint32_t kItems = 8;
  std::vector<std::vector<int>> counts(kItems, std::vector<int>(kItems));
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    PlanConfig config = config_of(kItems, 1, 6, kItems);
    config.seed = seed;
    AdaptiveRun run(config);
    run.feed(kItems);
    ASSERT_EQ(run.batch(), Outcome::kOk);
    for (std::uint32_t place = 0; place < kItems; ++place) {
      ++counts[place].at(run.items[place]);
    }
  }
  for (const std::vector<int>& of_place : counts) {
    EXPECT_LT(chi_square(of_place), 30.0);  // 7 degrees of freedom: one of 10,000 is more
  }
}

}  // namespace
}  // namespace pyecho::test
