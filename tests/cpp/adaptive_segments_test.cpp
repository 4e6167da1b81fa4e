// Segments with an adaptive factor: items keep their bounds over joints, the log decides all, and a position goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "support/plan_runner.hpp"

namespace pyecho::test::planned::adaptive_segments {
namespace {

World adaptive_world(std::mt19937& random) {
  const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
  const std::uint32_t rows = 1 + below(6);
  const std::uint32_t min_uses = 1 + below(3);
  World world{.config = {.capacity = rows + below(20),
                         .factor = static_cast<double>(min_uses + below(5)),
                         .seed = random(),
                         .unique_in_batch = below(3) == 0,
                         .iteration_uses = below(2) * (1 + below(6)) * rows,
                         .segment_uses = 1 + below(below(2) == 0 ? 4 : 120),
                         .min_uses = min_uses,
                         .max_age = below(3) == 0 ? 1 + below(12) : 0,
                         .batch_size = rows},
              .passes = std::vector<std::uint64_t>(1 + below(8), 0)};
  for (std::uint64_t& pass : world.passes) {
    pass = below(6) == 0 ? below(3) : below(40);
  }
  world.passes[0] += 1;
  return world;
}

bool has_joints(const World& world) { return !world.config.unique_in_batch || world.config.min_uses == 1; }

constexpr std::uint32_t kWorlds = 1500;

TEST(AdaptiveSegments, items_keep_their_bounds_and_batches_are_whole) {
  std::mt19937 random(1);
  std::uint64_t joints = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    const World world = adaptive_world(random);
    const Output output = Runner(world, 1 + number).run();
    auto uses = uses_in(output);
    for (std::uint64_t pass = 0; pass < world.passes.size(); ++pass) {
      for (std::uint64_t item = 0; item < world.passes[pass]; ++item) {
        const std::uint32_t had = uses[{pass, item}];
        ASSERT_TRUE(had >= world.config.min_uses && had <= world.config.factor) << number << ": " << had;
      }
    }
    for (std::size_t at = 0; at < output.batches.size(); ++at) {
      const Batch& batch = output.batches[at];
      std::set<std::pair<std::uint64_t, std::uint64_t>> distinct;
      for (const Row& row : batch) {
        distinct.emplace(row.pass, row.item);
      }
      ASSERT_TRUE(!world.config.unique_in_batch || distinct.size() == batch.size()) << number << ", " << at;
      const bool drains = output.positions[at].ended;
      ASSERT_TRUE(batch.size() == world.config.batch_size || drains) << number << ", " << at;
    }
    ASSERT_TRUE(world.config.iteration_uses > 0 || output.ended == world.passes.size()) << number;
    ASSERT_TRUE(has_joints(world) || output.log.size() == 1) << number;
    joints += output.log.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(joints, kWorlds / 2);
}

TEST(AdaptiveSegments, a_source_that_keeps_up_has_the_least_uses) {
  std::mt19937 random(4);
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    World world = adaptive_world(random);
    world.config.max_age = 0;
    const Output output = Runner(world, Source::kKeepsUp).run();
    const std::uint64_t uses =
        std::accumulate(output.batches.begin(), output.batches.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const Batch& batch) { return sum + batch.size(); });
    const std::uint64_t items = std::accumulate(world.passes.begin(), world.passes.end(), std::uint64_t{0});
    ASSERT_EQ(uses, items * world.config.min_uses) << number;
  }
}

TEST(AdaptiveSegments, the_log_decides_all_and_a_position_tells_of_its_segment_only) {
  std::mt19937 random(3);
  std::uint64_t skipped = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    World world = adaptive_world(random);
    const Output output = Runner(world, 1 + number).run();
    world.config.replay = std::make_shared<const DecisionLog>(output.log);
    const Output again = Runner(world, 7 + number).run();
    ASSERT_EQ(rows_of(output), rows_of(again)) << number;
    ASSERT_EQ(output.ended, again.ended) << number;
    ASSERT_EQ(output.log, again.log) << number;
    const std::uint64_t longest = *std::ranges::max_element(world.passes);
    const auto items = static_cast<double>(world.config.segment_uses + longest + world.config.capacity) +
                       2.0 * world.config.batch_size + 10;
    expect_to_go_on(world, output, random, 0, 1, [&](const PlanPosition& at) {
      skipped += at.segment.streams.empty() ? 0 : 1;
      const auto decided = static_cast<double>(at.decisions.size());
      EXPECT_TRUE(!has_joints(world) || decided <= 2 * items * world.config.factor + 8) << number;
    });
    ASSERT_FALSE(HasFailure()) << number;
  }
  EXPECT_GT(skipped, kWorlds);
}

}  // namespace
}  // namespace pyecho::test::planned::adaptive_segments
