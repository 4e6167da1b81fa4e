#include "core/plan/plan.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <ranges>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/chi_square.hpp"
#include "support/plan_output.hpp"

namespace pyecho::test {
namespace {

// ---------------------------------------------------------------- factor

std::vector<std::uint32_t> uses_in_pass(double mean, std::uint64_t items, std::uint64_t known, std::uint64_t pass,
                                        std::uint64_t seed = 3) {
  EchoFactor factor(mean);
  factor.begin_pass(seed, pass, known);
  std::vector<std::uint32_t> uses(items);
  std::ranges::generate(uses, [&] { return factor.next(); });
  return uses;
}

TEST(EchoFactor, a_pass_has_exactly_the_uses_of_its_length_whether_that_is_known_or_not) {
  for (const double mean : {1.0, 1.1, 1.25, 1.999, 2.5, 3.75, 7.0, 1000.5}) {
    const EchoFactor factor(mean);
    EXPECT_EQ(factor.min_uses(), std::floor(mean));
    EXPECT_EQ(factor.max_uses(), std::ceil(mean));
    for (const std::uint64_t items : {0ULL, 1ULL, 2ULL, 3ULL, 7ULL, 10ULL, 999ULL}) {
      for (std::uint64_t pass = 0; pass < 5; ++pass) {
        for (const std::uint64_t known : {kUnknown, items, items / 2}) {  // the last: it turns out longer
          const std::vector<std::uint32_t> uses = uses_in_pass(mean, items, known, pass);
          ASSERT_EQ(std::accumulate(uses.begin(), uses.end(), 0ULL), uses_of(mean, items)) << mean << ' ' << items;
          ASSERT_TRUE(
              std::ranges::all_of(uses, [&](auto n) { return n == factor.min_uses() || n == factor.max_uses(); }));
        }
      }
      EXPECT_EQ(factor.uses_of_pass(items), uses_of(mean, items));
    }
  }
}

TEST(EchoFactor, of_a_pass_of_known_length_every_item_is_equally_likely_to_get_one_more) {
  std::vector<int> counts(10);
  for (std::uint64_t pass = 0; pass < 10'000; ++pass) {
    const std::vector<std::uint32_t> uses = uses_in_pass(1.3, 10, 10, pass);
    for (std::size_t item = 0; item < 10; ++item) {
      counts[item] += static_cast<int>(uses[item] - 1);
    }
  }
  EXPECT_LT(chi_square(counts), 28.0);  // 9 degrees of freedom
}

TEST(EchoFactor, the_choice_is_a_function_of_seed_and_pass) {
  EXPECT_EQ(uses_in_pass(1.5, 64, 64, 2, 1), uses_in_pass(1.5, 64, 64, 2, 1));
  EXPECT_NE(uses_in_pass(1.5, 64, 64, 2, 1), uses_in_pass(1.5, 64, 64, 3, 1));
  EXPECT_NE(uses_in_pass(1.5, 64, 64, 2, 1), uses_in_pass(1.5, 64, 64, 2, 2));
  EXPECT_EQ(uses_in_pass(1.5, 64, kUnknown, 2), uses_in_pass(1.5, 64, kUnknown, 3));
}

// ---------------------------------------------------------------- configuration

TEST(Plan, a_pass_with_more_items_than_told_has_room_for_their_uses) {
  Plan plan({.capacity = 8, .slots = 12, .factor = 2, .batch_rows = 4});
  plan.begin(0, {.items = 2, .uses = 20'000});
  for (std::uint32_t slot = 0; slot < 8; ++slot) {
    plan.feed(slot);
  }
  std::vector<Use> uses(4);
  std::uint32_t drawn = 0;
  EXPECT_EQ(plan.draw(uses, drawn), Outcome::kOk);
  EXPECT_EQ(drawn, 4U);
}

TEST(Plan, what_cannot_be_is_refused) {
  for (const double factor :
       {0.0, 0.99, -1.0, std::nan(""), std::numeric_limits<double>::infinity(), 0x1.0p32, 0x1.0p32 - 0.5}) {
    EXPECT_THROW(Plan({.factor = factor}), std::invalid_argument) << factor;
    EXPECT_THROW(static_cast<void>(Plan::size_bytes({.factor = factor})), std::invalid_argument) << factor;
  }
  for (const PlanConfig& config : {PlanConfig{.capacity = 0}, PlanConfig{.capacity = 2, .slots = 1},
                                   PlanConfig{.capacity = 1U << 31, .slots = 1U << 31},
                                   PlanConfig{.capacity = 0x80000000U, .slots = 0x80000000U, .factor = 0x1.0p31}}) {
    EXPECT_THROW(Plan{config}, std::invalid_argument);
    EXPECT_THROW(static_cast<void>(Plan::size_bytes(config)), std::invalid_argument);
  }
}

// ---------------------------------------------------------------- one pass

TEST(Plan, without_shuffling_the_uses_of_an_item_follow_each_other) {
  const Iterations thrice{{{{0, 0}, {0, 1}, {0, 2}, {1, 0}}, {{1, 1}, {1, 2}}}};
  EXPECT_EQ(run_plan({.capacity = 1, .slots = 3, .factor = 3.0}, {2}, 4), thrice);
  const Iterations once{{{{0, 0}, {1, 0}}, {{2, 0}, {3, 0}}, {{4, 0}}}};
  EXPECT_EQ(run_plan({.factor = 1.0}, {5}, 2), once);
}

TEST(Plan, the_pool_is_full_at_every_draw_until_it_drains) {
  Plan plan({.capacity = 3, .slots = 4});
  PlanSource source(plan, 4, {40});
  std::array<Use, 1> use{};
  for (std::uint32_t drawn = 0, total = 0; total < 80; total += drawn) {
    while (plan.draw(use, drawn) == Outcome::kEmpty) {
      ASSERT_LT(plan.resident(), 3U);
      ASSERT_TRUE(source.feed());
    }
    source.take(use[0]);
    ASSERT_TRUE(source.ended() || plan.resident() + (use[0].last ? 1 : 0) == 3U);
  }
  EXPECT_EQ(plan.ready(), Outcome::kEnd);
  EXPECT_FALSE(plan.end_input());  // the input has ended before
}

TEST(Plan, items_are_drawn_in_proportion_to_their_remaining_uses) {
  std::vector<int> first(8);
  int other = 0;  // after one draw from two items of three uses, the other item has 3 of the 5 uses left
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    ++first[run_plan({.capacity = 8, .slots = 8, .factor = 3.0, .seed = seed}, {8}, 1)[0][0][0].item];
    const Batches two = run_plan({.capacity = 2, .slots = 2, .factor = 3.0, .seed = seed}, {2}, 2)[0];
    other += two[0][0].item != two[0][1].item ? 1 : 0;
  }
  EXPECT_LT(chi_square(first), 25.0);  // 7 degrees of freedom
  EXPECT_NEAR(other / 10'000.0, 0.6, 0.025);
}

TEST(Plan, draws_depend_on_seed_and_epoch_alone) {
  const auto draws = [](std::uint64_t seed, std::uint64_t epoch, std::uint32_t slots, std::uint32_t rows) {
    const PlanConfig config{.capacity = 16, .slots = slots, .seed = seed};
    Plan plan(config);
    plan.begin(epoch, {});
    const Batches batches = run_plan(plan, config, {64}, rows)[0];
    const auto flat = std::views::join(batches);
    return std::vector<Emission>(flat.begin(), flat.end());
  };
  EXPECT_EQ(draws(1, 1, 16, 1), draws(1, 1, 20, 7));
  EXPECT_NE(draws(1, 1, 16, 1), draws(1, 2, 16, 1));
  EXPECT_NE(draws(1, 1, 16, 1), draws(2, 1, 16, 1));
}

// ---------------------------------------------------------------- every configuration

struct Run {
  PlanConfig config;
  Passes passes;
  std::uint32_t rows;
};

std::vector<Run> runs() {
  std::vector<Run> all;
  for (const std::uint32_t rows : {1U, 2U, 8U}) {
    for (const std::uint32_t capacity : {1U, 2U, 3U, 10U, 64U}) {
      for (const double factor : {1.0, 1.25, 2.0, 3.75, 9.0}) {
        for (const Passes& passes : {Passes{0}, {1}, {5}, {200}, {30, 0, 0, 40, 1}, {1, 1, 1, 1, 1, 1}, {0, 70, 0}}) {
          for (const bool unique : {false, true}) {
            for (const std::uint64_t iteration_uses : {0U, 12U}) {
              all.push_back({{.capacity = capacity,
                              .slots = capacity + 1 + rows,
                              .factor = factor,
                              .seed = rows,
                              .unique_in_batch = unique,
                              .iteration_uses = iteration_uses * rows},
                             passes,
                             rows});
            }
          }
        }
      }
    }
  }
  return all;
}

std::size_t uses_in(const Batches& batches) {
  return std::accumulate(batches.begin(), batches.end(), std::size_t{0},
                         [](std::size_t sum, const auto& batch) { return sum + batch.size(); });
}

TEST(Plan, every_use_comes_once_in_its_iteration_and_how_it_is_fed_does_not_show) {
  for (const auto& [config, passes, rows] : runs()) {
    const Iterations iterations = run_plan(config, passes, rows);
    expect_exact(iterations, config.factor, passes);
    ASSERT_EQ(run_plan(config, passes, rows, 5), iterations);
    if (config.iteration_uses == 0) {
      ASSERT_EQ(iterations.size(), passes.size());
    }
    for (std::size_t number = 0; number < iterations.size(); ++number) {
      const Batches& batches = iterations[number];
      if (config.iteration_uses == 0) {
        ASSERT_EQ(uses_in(batches), uses_of(config.factor, passes[number]));
      } else if (number + 1 < iterations.size()) {
        ASSERT_EQ(uses_in(batches), config.iteration_uses);
      } else {
        ASSERT_TRUE(number == 0 || !batches.empty());  // the one before it would have been the last
      }
      for (std::size_t at = 0; at < batches.size(); ++at) {
        std::set<std::uint64_t> items;
        for (const Emission& emission : batches[at]) {
          items.insert(emission.item);
        }
        ASSERT_TRUE(!config.unique_in_batch || items.size() == batches[at].size());
        ASSERT_TRUE(batches[at].size() == rows || at + 1 == batches.size() || config.unique_in_batch);
      }
    }
  }
}

TEST(Plan, with_unique_items_batches_are_whole_until_the_pool_drains) {
  const Batches batches =
      run_plan({.capacity = 8, .slots = 9, .factor = 4.0, .unique_in_batch = true}, {100, 100}, 8).back();
  const auto first_short = std::ranges::find_if(batches, [](const auto& batch) { return batch.size() < 8; });
  EXPECT_GE(first_short - batches.begin(), 50 - 8);  // the pool holds 8 items of at most 4 uses, one a batch
  const Iterations alone{{{{0, 0}}, {{0, 1}}, {{0, 2}}}};
  EXPECT_EQ(run_plan({.capacity = 4, .slots = 4, .factor = 3.0, .unique_in_batch = true}, {1}, 4), alone);
}

TEST(Plan, with_unique_items_the_first_of_a_batch_is_uniform_over_remaining_uses) {
  std::vector<int> counts(6);
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    const PlanConfig config{.capacity = 6, .slots = 6, .seed = seed, .unique_in_batch = true};
    ++counts[run_plan(config, {6}, 3)[0][0][0].item];
  }
  EXPECT_LT(chi_square(counts), 21.0);  // 5 degrees of freedom
}

// ---------------------------------------------------------------- passes that flow, begin()

TEST(Plan, only_the_last_of_passes_that_flow_drains) {
  const PlanConfig config{.capacity = 10, .slots = 10};
  const Batches alone = run_plan(config, {100}, 10)[0];
  const Iterations flowing = run_plan(config, {100, 100}, 10);
  EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + 17, flowing[0].begin()));  // until its last item is admitted
  EXPECT_TRUE(std::ranges::any_of(flowing[0].back(), [](const Emission& emission) { return emission.item >= 100; }));
  EXPECT_TRUE(std::ranges::any_of(flowing[1].front(), [](const Emission& emission) { return emission.item < 100; }));
}

TEST(Plan, a_plan_that_begins_again_half_way_is_as_new) {
  for (const auto& [config, passes, rows] : runs()) {
    Plan plan(config);
    PlanSource source(plan, config.slots, passes);
    std::vector<Use> uses(3);
    for (std::uint32_t fed = 0, drawn = 0; fed < config.slots && source.feed(); ++fed) {
      static_cast<void>(plan.draw(uses, drawn));
    }
    plan.begin(0, {});
    ASSERT_EQ(run_plan(plan, config, passes, rows), run_plan(config, passes, rows));
  }
}

// ---------------------------------------------------------------- min_items

TEST(Plan, min_items_counts_places_in_the_pool_and_uses_that_are_missing) {
  const auto of_fresh = [](std::uint32_t capacity, double factor, std::uint64_t draws) {
    Plan plan({.capacity = capacity, .slots = capacity + 100, .factor = factor});
    EXPECT_EQ(plan.ready(), Outcome::kEmpty);
    return plan.min_items(draws);
  };
  EXPECT_EQ(of_fresh(1, 1.0, 1), 1U);
  EXPECT_EQ(of_fresh(1, 1.0, 8), 8U);
  EXPECT_EQ(of_fresh(1, 2.0, 8), 4U);
  EXPECT_EQ(of_fresh(1, 2.5, 9), 3U);    // some may have three uses
  EXPECT_EQ(of_fresh(10, 2.0, 8), 10U);  // the pool must be full, and that is enough
  EXPECT_EQ(of_fresh(10, 2.0, 13), 11U);
  EXPECT_EQ(of_fresh(10, 1.0, 13), 22U);
}

TEST(Plan, what_is_left_of_an_iteration_does_not_wait_for_more_items_than_it_needs) {
  Plan plan({.capacity = 2, .slots = 40, .factor = 2.0});
  PlanSource source(plan, 40, {3, 30});
  std::array<Use, 20> uses{};
  std::uint32_t drawn = 0;
  for (int feeds = 0; feeds < 4; ++feeds) {  // the first pass and its end
    source.feed();
  }
  ASSERT_EQ(plan.draw(uses, drawn), Outcome::kEmpty);
  EXPECT_EQ(plan.min_items(20), 1U);  // for 6 - drawn uses at most
  source.feed();
}

}  // namespace
}  // namespace pyecho::test
