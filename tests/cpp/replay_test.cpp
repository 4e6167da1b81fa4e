#include "core/plan/replay.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/memory/checksum.hpp"
#include "support/plan_output.hpp"

namespace pyecho::test {
namespace {

// A plan with more slots than a replay needs, and a batch size.
struct Case {
  PlanConfig config;
  std::uint32_t rows;
  Passes passes{};
};

Case random_case(std::uint64_t seed) {
  Xoshiro256 random(seed);
  Case made{.config = {.capacity = 1 + random.below(20), .slots = 64, .seed = seed}, .rows = 1 + random.below(5)};
  made.config.factor = 1 + random.below(9) * 0.5;
  made.config.unique_in_batch = made.config.capacity >= made.rows && random.below(2) == 0;
  if (random.below(3) == 0) {
    made.config.iteration_uses = std::uint64_t{made.rows} * (1 + random.below(9));
  }
  for (std::uint32_t pass = 1 + random.below(4); pass > 0; --pass) {
    made.passes.push_back(random.below(30));
  }
  return made;
}

std::vector<PassRun> runs_of(const Passes& passes) {
  std::vector<PassRun> runs;
  for (const std::uint64_t items : passes) {
    runs.push_back({.passes = 1, .items = items});
  }
  return runs;
}

// Runs a plan to its end after so many iterations and batches were taken by another one, by way of a replay. Returns
// what it draws.
Iterations resumed(const Case& made, std::uint64_t iterations, std::uint64_t batches, bool feed_all) {
  PlanConfig config = made.config;
  config.slots += static_cast<std::uint32_t>(std::accumulate(made.passes.begin(), made.passes.end(), 0U));
  Plan plan(config);
  Replay replay(plan, made.rows,
                {.passes = runs_of(made.passes),
                 .ended = true,
                 .feed_all = feed_all,
                 .iterations = iterations,
                 .batches = batches});
  while (!replay.advance(3)) {
  }

  // The rest of the input.
  std::vector<std::uint64_t> number_in(config.slots);
  std::vector<std::uint32_t> free = replay.free_slots();
  std::size_t held = 0;
  plan.each_item([&](std::uint32_t slot, std::uint64_t number) {
    number_in[slot] = number;
    ++held;
  });
  EXPECT_EQ(held + free.size(), config.slots);
  // The input so far: whole passes, and items of the next one.
  std::uint64_t plan_fed = plan.open_items();
  for (std::uint64_t i = 0; i < replay.passes_fed(); ++i) {
    plan_fed += made.passes[i];
  }
  std::uint64_t fed = 0;
  std::uint64_t pass = 0;
  const auto feed = [&] {  // the next item or end of a pass that the replay has not fed
    for (; pass < made.passes.size(); ++pass) {
      fed = std::max(fed, plan_fed);
      const std::uint64_t end =
          std::accumulate(made.passes.begin(), made.passes.begin() + static_cast<int>(pass) + 1, std::uint64_t{0});
      if (fed < end) {
        number_in[free.back()] = fed++;
        plan.feed(free.back());
        free.pop_back();
        return true;
      }
      if (pass >= replay.passes_fed()) {
        if (++pass == made.passes.size()) {
          plan.end_input();
        } else {
          plan.end_pass();
        }
        return true;
      }
    }
    return false;
  };
  Iterations drawn(1);
  std::vector<Emission> batch;
  std::vector<Use> uses(made.rows);
  while (!plan.finished()) {
    std::uint32_t count = 0;
    const Outcome step = plan.draw(std::span(uses).first(made.rows - batch.size()), count);
    for (const Use& use : std::span(uses).first(count)) {
      batch.push_back({number_in[use.slot], use.ordinal});
      if (use.last) {
        free.push_back(use.slot);
      }
    }
    if (step == Outcome::kEmpty) {
      if (!feed()) {
        ADD_FAILURE() << "the plan wants more";
        break;
      }
    } else if (!batch.empty()) {
      drawn.back().push_back(std::move(batch));
      batch.clear();
      plan.end_batch();
    } else {
      plan.next_iteration();
      drawn.emplace_back();
    }
  }
  drawn.pop_back();
  return drawn;
}

TEST(Replay, a_plan_goes_on_from_any_position_as_if_it_had_drawn_everything_before) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case made = random_case(seed);
    const Iterations whole = run_plan(made.config, made.passes, made.rows);
    Xoshiro256 random(seed + 1000);
    const std::uint64_t iteration = random.below(static_cast<std::uint32_t>(whole.size()));
    const std::uint64_t batch = random.below(static_cast<std::uint32_t>(whole[iteration].size()) + 1);
    Iterations rest(whole.begin() + static_cast<int>(iteration), whole.end());
    rest[0].erase(rest[0].begin(), rest[0].begin() + static_cast<int>(batch));
    for (const bool feed_all : {false, true}) {
      ASSERT_EQ(resumed(made, iteration, batch, feed_all), rest)
          << "seed " << seed << ", " << iteration << '/' << batch;
    }
  }
}

// Returns whether a plan of five items comes to a position.
bool is_there(PlanPosition position) {
  Plan plan({.capacity = 4, .slots = 8, .factor = 2});
  try {
    return Replay(plan, 2, std::move(position)).advance(1000);
  } catch (const BadState&) {
    return false;
  }
}

TEST(Replay, a_position_that_cannot_be_is_refused) {
  const std::vector<PassRun> passes{{.passes = 1, .items = 5}};  // five batches
  EXPECT_TRUE(is_there({.passes = passes, .ended = true, .batches = 5}));
  EXPECT_TRUE(is_there({.passes = passes, .ended = true, .iterations = 1}));
  EXPECT_FALSE(is_there({.passes = passes, .ended = true, .batches = 6}));
  EXPECT_FALSE(is_there({.passes = passes, .ended = true, .iterations = 2}));
  EXPECT_FALSE(is_there({.passes = passes, .ended = true, .iterations = 1, .batches = 1}));
  EXPECT_FALSE(is_there({.open_items = 5, .batches = 5}));  // the pool does not drain
  EXPECT_FALSE(is_there({.batches = 1}));
  EXPECT_FALSE(is_there({.open_items = 9, .feed_all = true}));  // for 8 slots
}

TEST(Replay, numbers_that_contradict_each_other_are_refused_before_anything_is_planned) {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 32;
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  Plan plan({.capacity = 4, .slots = 8, .factor = 2});
  const auto at = [&](PlanPosition position) { Replay(plan, 2, std::move(position)); };
  EXPECT_THROW(at({.open_items = kMany, .batches = kMost}), BadState);
  EXPECT_THROW(at({.open_items = kMany, .batches = kMany + 2}), BadState);
  EXPECT_NO_THROW(at({.open_items = kMany, .batches = kMany}));
  EXPECT_THROW(at({.open_items = kMany, .iterations = 1}), BadState);
  EXPECT_THROW(at({.passes = {{.passes = kMany, .items = 2}}, .iterations = kMost}), BadState);
  EXPECT_NO_THROW(at({.passes = {{.passes = kMany, .items = 2}}, .iterations = kMany}));
  EXPECT_THROW(at({.open_items = kMany << 5U}), BadState);
  EXPECT_THROW(at({.passes = {{.passes = kMany, .items = 0}}}), BadState);

  Plan steps({.capacity = 4, .slots = 8, .factor = 2, .iteration_uses = 10});
  const auto step = [&](PlanPosition position) { Replay(steps, 2, std::move(position)); };
  EXPECT_THROW(step({.open_items = kMany, .iterations = kMany}), BadState);
  EXPECT_NO_THROW(step({.open_items = kMany, .iterations = kMany / 5}));
  // Input that is told and not planned costs nothing.
  EXPECT_NO_THROW(step({.passes = {{.passes = kMany, .items = kMany}}, .iterations = 3}));
  EXPECT_THROW(step({.passes = {{.passes = kMany, .items = kMany}}, .iterations = kMany << 3U}), BadState);
  EXPECT_NO_THROW(at({.passes = {{.passes = 40, .items = kMany}}, .iterations = 3}));
  EXPECT_THROW(at({.passes = {{.passes = 40, .items = kMany}}, .iterations = 8}), BadState);

  Plan unique({.capacity = 4, .slots = 8, .factor = 2, .unique_in_batch = true});  // of which many a batch is short
  EXPECT_NO_THROW(Replay(unique, 2, {.open_items = kMany, .batches = 2 * kMany}));
  EXPECT_THROW(Replay(unique, 2, {.open_items = kMany, .batches = 2 * kMany, .min_rows = 2}), BadState);
}

TEST(Replay, the_items_of_a_state_are_those_that_the_plan_holds) {
  Plan plan({.capacity = 4, .slots = 8, .factor = 2});
  Replay replay(plan, 2, {.open_items = 5, .feed_all = true});
  ASSERT_TRUE(replay.advance());
  const std::vector<std::uint64_t> all{0, 1, 2, 3, 4};
  EXPECT_EQ(replay.items_of(all), plan.items());
  for (const auto& others :
       std::vector<std::vector<std::uint64_t>>{{}, {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}}) {
    EXPECT_THROW(static_cast<void>(replay.items_of(others)), BadState);
  }
}

TEST(Replay, advances_a_bounded_step_at_a_time) {
  Plan plan({.capacity = 4, .slots = 8, .factor = 2});
  Replay replay(plan, 2, {.passes = {{.passes = 10'000'000'000, .items = 1}}, .iterations = 1'000'000'000});
  for (int step = 0; step < 5; ++step) {
    ASSERT_FALSE(replay.advance(1000));
  }
}

TEST(Checksum, any_flipped_bit_any_length_and_the_seed_change_it) {
  std::vector<std::byte> bytes(67);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const std::span<std::byte> part = std::span(bytes).first(size);
    const std::uint64_t sum = checksum(part, 7);
    EXPECT_NE(sum, checksum(part, 8));
    EXPECT_TRUE(size == 0 || sum != checksum(part.first(size - 1), 7));
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      const auto flip = std::byte{1} << (bit % 8);
      part[bit / 8] ^= flip;
      ASSERT_NE(checksum(part, 7), sum) << size << ", " << bit;
      part[bit / 8] ^= flip;
    }
  }
}

// Else it would go on with decisions of its own, up to the most uses of every item.
TEST(Replay, an_adaptive_position_with_too_few_decisions_is_refused) {
  const PlanConfig config{.capacity = 64, .slots = 128, .factor = 0x1.0p24, .min_uses = 1, .batch_rows = 32};
  Plan plan(config);
  Replay replay(plan, 32, {.passes = {{.passes = 1, .items = std::uint64_t{1} << 35}}, .batches = 1U << 24});
  EXPECT_THROW(static_cast<void>(replay.advance()), BadState);
}

}  // namespace
}  // namespace pyecho::test
