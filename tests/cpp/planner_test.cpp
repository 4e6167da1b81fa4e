#include "core/plan/planner.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "support/drive_planner.hpp"
#include "support/reference_planner.hpp"

namespace pyecho::test {
namespace {

TEST(EchoFactor, a_whole_factor_is_the_use_count_of_every_item) {
  for (const double whole : {1.0, 2.0, 7.0}) {
    const EchoFactor factor(whole, 1, 2);
    for (std::uint64_t item = 0; item < 100; ++item) {
      EXPECT_EQ(factor.uses_of(item), whole);
    }
    EXPECT_EQ(factor.max_uses(), whole);
    EXPECT_EQ(factor.uses_of_first(1000), whole * 1000);
  }
}

TEST(EchoFactor, a_fraction_adds_a_use_to_that_share_of_the_items) {
  for (const double mean : {1.1, 2.5, 3.99}) {
    const EchoFactor factor(mean, 3, 4);
    std::uint64_t total = 0;
    for (std::uint64_t item = 0; item < 40'000; ++item) {
      const std::uint32_t uses = factor.uses_of(item);
      ASSERT_TRUE(uses == std::floor(mean) || uses == std::floor(mean) + 1);
      ASSERT_EQ(uses, factor.uses_of(item));
      total += uses;
    }
    EXPECT_EQ(total, factor.uses_of_first(40'000));
    EXPECT_NEAR(static_cast<double>(total) / 40'000.0, mean, 0.01);
    EXPECT_EQ(factor.max_uses(), std::ceil(mean));
  }
}

TEST(EchoFactor, fractions_fall_differently_in_each_epoch_and_seed) {
  const auto pattern = [](std::uint64_t seed, std::uint64_t epoch) {
    const EchoFactor factor(1.5, seed, epoch);
    std::vector<std::uint32_t> uses;
    for (std::uint64_t item = 0; item < 64; ++item) {
      uses.push_back(factor.uses_of(item));
    }
    return uses;
  };
  EXPECT_EQ(pattern(1, 2), pattern(1, 2));
  EXPECT_NE(pattern(1, 2), pattern(1, 3));
  EXPECT_NE(pattern(1, 2), pattern(2, 2));
}

TEST(Planner, without_shuffling_the_uses_of_an_item_follow_each_other) {
  const PlannerConfig config{.capacity = 1, .slots = 3, .factor = 3.0};
  const Batches expected{{{0, 0}, {0, 1}, {0, 2}, {1, 0}}, {{1, 1}, {1, 2}}};
  EXPECT_EQ(drive_planner(config, 2, 4), expected);
}

TEST(Planner, a_factor_of_one_without_shuffling_keeps_the_source) {
  const Batches expected{{{0, 0}, {1, 0}}, {{2, 0}, {3, 0}}, {{4, 0}}};
  EXPECT_EQ(drive_planner({.capacity = 1, .slots = 1, .factor = 1.0}, 5, 2), expected);
}

TEST(Planner, a_factor_of_one_with_shuffling_is_a_permutation) {
  const PlannerConfig config{.capacity = 8, .slots = 8, .factor = 1.0};
  const Batches batches = drive_planner(config, 100, 10);
  expect_exact(batches, config, 100);
  EXPECT_NE(batches.front(), (Batches{{{0, 0}, {1, 0}, {2, 0}}}.front()));
}

TEST(Planner, room_must_be_filled_before_each_draw) {
  Planner planner({.capacity = 2, .slots = 4, .factor = 2.0});
  EXPECT_TRUE(planner.has_room());
  planner.admit(0);
  EXPECT_TRUE(planner.has_room());
  planner.admit(1);
  EXPECT_FALSE(planner.has_room());
  Use use{};
  std::uint32_t draws = 0;
  do {
    ASSERT_TRUE(planner.draw(use));
    EXPECT_EQ(planner.has_room(), use.last);
    ++draws;
  } while (!use.last);
  EXPECT_GE(draws, 2U);
  EXPECT_EQ(planner.resident(), 1U);
  planner.end_of_source();
  EXPECT_FALSE(planner.has_room());
  EXPECT_FALSE(planner.exhausted());
  while (planner.draw(use)) {
    ++draws;
  }
  EXPECT_EQ(draws, 4U);
  EXPECT_TRUE(planner.exhausted());
}

TEST(Planner, an_empty_source_ends_at_once) {
  for (const std::uint32_t capacity : {1U, 4U}) {
    EXPECT_TRUE(drive_planner({.capacity = capacity, .slots = 4}, 0, 4).empty());
  }
}

std::vector<PlannerConfig> configurations() {
  std::vector<PlannerConfig> configs;
  for (const std::uint32_t capacity : {1U, 2U, 3U, 10U, 64U}) {
    for (const double factor : {1.0, 1.3, 2.0, 3.75, 6.0}) {
      for (const std::uint64_t seed : {0ULL, 17ULL}) {
        configs.push_back(
            {.capacity = capacity, .slots = capacity + 2, .factor = factor, .seed = seed, .epoch = capacity});
      }
    }
  }
  return configs;
}

TEST(Planner, every_use_of_every_item_is_drawn_once) {
  for (const PlannerConfig& config : configurations()) {
    for (const std::uint64_t items : {1ULL, 5ULL, 63ULL, 200ULL}) {
      expect_exact(drive_planner(config, items, 8), config, items);
    }
  }
}

TEST(Planner, draws_are_those_of_the_plain_reference) {
  for (const PlannerConfig& config : configurations()) {
    for (const std::uint64_t items : {1ULL, 5ULL, 200ULL}) {
      ASSERT_EQ(drive_planner(config, items, 8), ReferencePlanner(config, items).run(8))
          << "capacity " << config.capacity << ", factor " << config.factor;
    }
  }
}

TEST(Planner, draws_do_not_depend_on_batches_or_slot_numbers) {
  const auto flat = [](std::uint32_t slots, std::uint32_t rows) {
    std::vector<Emission> all;
    for (const auto& batch : drive_planner({.capacity = 5, .slots = slots, .factor = 2.5}, 60, rows)) {
      all.insert(all.end(), batch.begin(), batch.end());
    }
    return all;
  };
  EXPECT_EQ(flat(5, 1), flat(9, 7));
}

TEST(Planner, draws_depend_on_seed_and_epoch) {
  const auto draws = [](std::uint64_t seed, std::uint64_t epoch) {
    return drive_planner({.capacity = 16, .slots = 16, .seed = seed, .epoch = epoch}, 64, 8);
  };
  EXPECT_EQ(draws(1, 1), draws(1, 1));
  EXPECT_NE(draws(1, 1), draws(1, 2));
  EXPECT_NE(draws(1, 1), draws(2, 1));
}

TEST(Planner, the_first_draw_is_uniform_over_the_pool) {
  std::map<std::uint64_t, int> counts;
  constexpr int kTrials = 8000;
  for (std::uint64_t seed = 0; seed < kTrials; ++seed) {
    Planner planner({.capacity = 8, .slots = 8, .factor = 3.0, .seed = seed});
    for (std::uint32_t slot = 0; slot < 8; ++slot) {
      planner.admit(slot);
    }
    Use use{};
    ASSERT_TRUE(planner.draw(use));
    ++counts[use.source_index];
  }
  double chi_square = 0.0;
  for (std::uint64_t item = 0; item < 8; ++item) {
    chi_square += std::pow(counts[item] - kTrials / 8.0, 2) / (kTrials / 8.0);
  }
  EXPECT_LT(chi_square, 25.0);  // 7 degrees of freedom
}

TEST(Planner, items_are_drawn_in_proportion_to_their_remaining_uses) {
  // After one draw from two items of three uses, the other item has 3 of the 5 uses left.
  int other = 0;
  constexpr int kTrials = 10'000;
  for (std::uint64_t seed = 0; seed < kTrials; ++seed) {
    Planner planner({.capacity = 2, .slots = 2, .factor = 3.0, .seed = seed});
    planner.admit(0);
    planner.admit(1);
    Use first{};
    Use second{};
    ASSERT_TRUE(planner.draw(first) && planner.draw(second));
    other += first.slot != second.slot ? 1 : 0;
  }
  EXPECT_NEAR(other / static_cast<double>(kTrials), 0.6, 0.025);
}

// Counted in a simulation: at each state on the way, how many admissions the next draws really
// take.
TEST(Planner, min_admissions_never_exceeds_what_is_needed) {
  for (const double factor : {1.0, 1.5, 2.0, 4.0}) {
    for (const std::uint32_t capacity : {1U, 2U, 7U}) {
      std::vector<std::uint64_t> admitted_at{};  // before draw i could be made
      struct State {
        std::uint64_t draws_made;
        std::uint64_t admitted;
        std::vector<std::uint64_t> bounds;  // for 1, 2, ... draws
      };
      std::vector<State> states;
      Planner planner({.capacity = capacity, .slots = capacity, .factor = factor, .seed = 5});
      std::vector<std::uint32_t> free_slots;
      for (std::uint32_t slot = 0; slot < capacity; ++slot) {
        free_slots.push_back(slot);
      }
      const auto note = [&] {
        State state{admitted_at.size(), planner.admitted(), {}};
        for (std::uint64_t draws = 1; draws <= 12; ++draws) {
          state.bounds.push_back(planner.min_admissions(draws));
        }
        states.push_back(state);
        EXPECT_EQ(planner.min_admissions(0), 0U);
        EXPECT_EQ(planner.min_admissions(1) > 0, planner.has_room());
      };
      while (admitted_at.size() < 120) {
        note();
        while (planner.has_room()) {
          planner.admit(free_slots.back());
          free_slots.pop_back();
          note();
        }
        admitted_at.push_back(planner.admitted());
        Use use{};
        ASSERT_TRUE(planner.draw(use));
        if (use.last) {
          free_slots.push_back(use.slot);
        }
      }
      for (const State& state : states) {
        for (std::uint64_t draws = 1; draws <= 12; ++draws) {
          const std::uint64_t last = state.draws_made + draws - 1;
          if (last < admitted_at.size()) {
            ASSERT_LE(state.bounds[draws - 1], admitted_at[last] - state.admitted);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pyecho::test
