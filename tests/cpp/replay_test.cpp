#include "core/plan/replay.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/memory/checksum.hpp"
#include "support/plan_output.hpp"

namespace pyecho::test {
namespace {

// Returns whether a plan of five items comes to a position.
bool is_there(PlanPosition position) {
  Plan plan({.capacity = 4, .slots = 8, .factor = 2});
  try {
    return Replay(plan, 2, std::move(position)).advance(1000);
  } catch (const BadState&) {
    return false;
  }
}

TEST(Replay, numbers_that_contradict_each_other_are_refused_before_anything_is_planned) {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 23;
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  Plan plan({.capacity = 4, .slots = 8, .factor = 2});
  const auto at = [&](PlanPosition position) { Replay(plan, 2, std::move(position)); };
  EXPECT_THROW(at({.open_items = kMany, .batches = kMost}), BadState);
  EXPECT_THROW(at({.open_items = kMany, .batches = kMany + 2}), BadState);
  EXPECT_NO_THROW(at({.open_items = kMany, .batches = kMany}));
  EXPECT_THROW(at({.open_items = kMany, .iterations = 1}), BadState);
  EXPECT_THROW(at({.passes = {{.passes = kMany, .items = 2}}, .iterations = kMost}), BadState);
  EXPECT_NO_THROW(at({.passes = {{.passes = kMany, .items = 2}}, .iterations = kMany}));
  EXPECT_NO_THROW(at({.open_items = kMany << 5U}));
  EXPECT_THROW(at({.open_items = kMany << 5U, .batches = kMany << 5U}), BadState);
  EXPECT_THROW(at({.passes = {{.passes = kMany << 3U, .items = 0}}}), BadState);

  Plan steps({.capacity = 4, .slots = 8, .factor = 2, .iteration_uses = 10});
  const auto step = [&](PlanPosition position) { Replay(steps, 2, std::move(position)); };
  EXPECT_THROW(step({.open_items = kMany, .iterations = kMany}), BadState);
  EXPECT_NO_THROW(step({.open_items = kMany, .iterations = kMany / 5}));
  // Input that is told and not planned costs nothing.
  EXPECT_NO_THROW(step({.passes = {{.passes = kMany, .items = kMany}}, .iterations = 3}));
  // Passes of one length have segments at known places.
  const PassRun first{.passes = 1, .items = 3};
  const PassRun run{.passes = kMany, .items = kMany};
  EXPECT_NO_THROW(step({.passes = {run}, .iterations = kMany << 3U}));
  EXPECT_THROW(step({.passes = {first, run}, .iterations = kMany << 3U}), BadState);
  EXPECT_NO_THROW(at({.passes = {run}, .iterations = 8}));
  EXPECT_THROW(at({.passes = {first, run}, .iterations = 8}), BadState);

  Plan unique({.capacity = 4, .slots = 8, .factor = 2, .unique_in_batch = true});  // of which many a batch is short
  EXPECT_NO_THROW(Replay(unique, 2, {.open_items = kMany, .batches = 2 * kMany}));
  EXPECT_THROW(Replay(unique, 2, {.open_items = kMany, .batches = 2 * kMany, .min_rows = 2}), BadState);
}

TEST(Replay, a_position_after_more_uses_than_a_segment_has_and_were_made_ahead_is_refused) {
  constexpr std::uint64_t kBatches = std::uint64_t{1} << 24;  // of two uses, as a segment has at most
  Plan plan({.capacity = 4, .slots = 8, .factor = 2});
  const auto at = [&](std::uint64_t batches, std::uint64_t ahead) {
    Replay(plan, 2, {.open_items = 4 * kBatches, .batches = batches, .ahead = ahead});
  };
  EXPECT_NO_THROW(at(kBatches, 0));
  EXPECT_THROW(at(kBatches * 17 / 16, 0), BadState);
  EXPECT_NO_THROW(at(kBatches * 17 / 16, kBatches / 16));
}

TEST(Replay, a_position_in_iterations_of_many_segments_each_is_not_refused) {
  constexpr std::uint64_t kUses = std::uint64_t{1} << 30;
  Plan plan({.capacity = 4, .slots = 8, .factor = 2, .iteration_uses = kUses});
  for (const std::uint64_t batches : {std::uint64_t{0}, std::uint64_t{5}, kUses / 4}) {
    EXPECT_NO_THROW(Replay(plan, 2, {.passes = {{.passes = kUses, .items = 7}}, .iterations = 3, .batches = batches}));
  }
}

TEST(Replay, a_segment_that_cannot_be_is_refused) {
  const auto begins = [](Segment segment) {
    return is_there({.segment = std::move(segment),
                     .passes = {{.passes = 1, .items = 5}},
                     .ended = true,
                     .iterations = 3,
                     .batches = 1});
  };
  const Crossing third{.iterations = 3, .uses = 0, .more = 0};
  EXPECT_TRUE(begins({.passes = 3, .taken = 15, .streams = {third}}));
  EXPECT_FALSE(begins({.passes = 3, .taken = 15, .streams = {}}));
  EXPECT_FALSE(begins({.passes = 3, .taken = 15, .streams = {third, third}}));
  EXPECT_FALSE(begins({.passes = 3, .items = 6, .parts = 1, .taken = 15, .streams = {third}}));
  EXPECT_FALSE(begins({.passes = 3, .taken = 15, .streams = {{.iterations = 4, .uses = 0, .more = 0}}}));
  EXPECT_FALSE(begins({.passes = 3, .taken = 15, .streams = {{.iterations = 3, .uses = 3, .more = 0}}}));
  EXPECT_FALSE(begins({.passes = 9, .taken = 15, .streams = {third}}));
}

TEST(Replay, uses_before_a_segment_are_not_uses_of_its_items) {
  Plan plan({.capacity = 4, .slots = 8, .factor = 1, .iteration_uses = 10, .segment_uses = 3});
  const Crossing ninth{.iterations = 0, .uses = 9, .more = 0};
  Replay replay(plan, 2,
                {.segment = {.items = 9, .parts = 3, .taken = 9, .streams = {ninth}},
                 .passes = {{.passes = 1, .items = 12}},
                 .ended = true,
                 .feed_all = true,
                 .iterations = 2});
  EXPECT_TRUE(replay.advance());
}

TEST(Replay, an_iteration_of_so_many_uses_ends_with_its_last_batch_whatever_follows) {
  Plan plan({.capacity = 1, .slots = 8, .factor = 2, .iteration_uses = 10});
  Replay replay(plan, 2, {.open_items = 5, .feed_all = true, .iterations = 1});
  ASSERT_TRUE(replay.advance());
  EXPECT_EQ(plan.resident(), 0U);
}

// The rows that its batches might have are in a later segment.
TEST(Replay, a_position_after_a_short_last_batch_is_found) {
  Plan plan({.capacity = 8, .slots = 16, .factor = 2.5, .iteration_uses = 34, .segment_uses = 35});
  Replay replay(plan, 11, {.passes = {{.passes = 4, .items = 31}}, .ended = true, .iterations = 1, .batches = 4});
  EXPECT_TRUE(replay.advance());
  EXPECT_EQ(replay.uses_drawn(), 34U);
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

// An item that left ahead of a state is in no state, although the plan drops it only with its next batch.
TEST(Replay, an_adaptive_plan_forgets_items_that_a_state_does_not_hold) {
  Plan plan({.capacity = 4, .slots = 8, .factor = 4, .min_uses = 1, .batch_size = 2});
  Replay replay(plan, 2, {.open_items = 3, .feed_all = true});
  ASSERT_TRUE(replay.advance());
  const Places held = replay.items_of(std::vector<std::uint64_t>{0, 2});
  EXPECT_EQ(held.size(), 2U);
  EXPECT_EQ(held, plan.items());
  EXPECT_EQ(held, replay.items());
}

TEST(Replay, passes_without_items_are_fed_in_time) {
  for (const std::uint32_t min_uses : {0U, 1U}) {
    Plan plan({.capacity = 4, .slots = 8, .factor = 2, .min_uses = min_uses, .batch_size = 2});
    EXPECT_TRUE(Replay(plan, 2, {.passes = {{.passes = 1U << 20, .items = 0}}, .feed_all = true}).advance());
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
  const PlanConfig config{.capacity = 64, .slots = 128, .factor = 0x1.0p24, .min_uses = 1, .batch_size = 32};
  Plan plan(config);
  Replay replay(plan, 32, {.passes = {{.passes = 1, .items = std::uint64_t{1} << 35}}, .batches = 1U << 24});
  EXPECT_THROW(static_cast<void>(replay.advance()), BadState);
}

}  // namespace
}  // namespace pyecho::test
