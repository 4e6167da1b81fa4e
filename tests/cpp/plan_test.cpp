#include "core/plan/plan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

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

TEST(EchoFactor, segments_of_a_pass_have_exactly_its_uses_and_need_none_of_the_segments_before) {
  constexpr std::uint64_t kItems = 100;
  std::vector<std::uint64_t> more(kItems, 0);  // in all passes
  for (std::uint64_t pass = 0; pass < 4000; ++pass) {
    const std::uint64_t part = 1 + pass % (kItems + 2);
    const double mean = pass % 2 == 0 ? 2.3 : 1.05;
    EchoFactor factor(mean, false, part);
    factor.begin_pass(3, pass, kItems);
    for (std::uint64_t item = 0; item < kItems; ++item) {
      ASSERT_EQ(factor.more_before(item), factor.given()) << pass << ' ' << item;
      EchoFactor later(mean, false, part);
      later.begin_pass(3, pass, kItems);
      later.skip(item - item % part, later.more_before(item - item % part));
      for (std::uint64_t each = item - item % part; each < item; ++each) {
        static_cast<void>(later.next());
      }
      const std::uint32_t uses = factor.next();
      ASSERT_EQ(later.next(), uses) << pass << ' ' << item;
      more[item] += mean == 2.3 ? uses - 2 : 0;
    }
    ASSERT_EQ(factor.given() + kItems * factor.min_uses(), uses_of(mean, kItems));
  }
  for (const std::uint64_t count : more) {  // of 2000, each with the chance 0.3: within 5 deviations
    EXPECT_NEAR(static_cast<double>(count), 600, 103);
  }
}

// ---------------------------------------------------------------- configuration

TEST(Plan, a_pass_with_more_items_than_told_has_room_for_their_uses) {
  Plan plan({.capacity = 8, .slots = 12, .factor = 2, .batch_size = 4});
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

}  // namespace
}  // namespace pyecho::test
