// Segments: a run over many joints is exact, independent of timing and ranks, and goes on from any position.
#include "core/plan/segments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "support/plan_runner.hpp"

namespace pyecho::test::planned::segments {
namespace {

std::uint32_t below(std::mt19937& random, std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); }

World any_world(std::mt19937& from) {
  const auto below = [&](std::uint32_t bound) { return segments::below(from, bound); };
  const std::array<std::uint32_t, 5> streams{1, 1, 2, 4, 6};
  const std::array<double, 4> factors{1, 2, 2.5, 3.3};
  World world{.config = {.factor = factors.at(below(4)),
                         .seed = 5,
                         .segment_uses = below(4) == 0 ? 0 : 1 + below(30),  // 0: no joints
                         .streams = streams.at(below(5)),
                         .batch_size = 1 + below(5)},
              .passes = std::vector<std::uint64_t>(1 + below(8), 0)};
  PlanConfig& config = world.config;
  config.capacity = config.streams * (1 + below(below(2) == 0 ? 6 : 60));
  config.even_factor = config.streams > 1;
  std::uint64_t steps = below(2) * (1 + below(6));
  if (below(2) == 0) {
    config.batch_size *= config.streams;
  } else {
    steps *= config.streams;
  }
  config.iteration_uses = steps * config.batch_size;
  world.known = below(2) > 0 || config.streams > 1;
  const std::uint64_t items = (2 + below(12)) * (below(4) == 0 ? 5 : 1);
  for (std::uint64_t& pass : world.passes) {
    pass = config.streams * items;
    if (!world.known) {
      pass = below(3) == 0 ? 0 : 1 + below(12);
    }
  }
  world.passes[0] = std::max<std::uint64_t>(1, world.passes[0]);
  if (config.streams > 1 && steps == 0) {
    const std::uint64_t fewer = below(config.streams);
    for (std::uint64_t& pass : world.passes) {
      pass -= fewer;
    }
    world.uses = EchoFactor(config.factor).uses_of_pass(items) + below(2) * below(7);
  }
  if (config.streams == 1 && steps == 0 && config.capacity >= config.batch_size) {
    config.unique_in_batch = below(3) == 0;
  }
  return world;
}

std::uint32_t dealt_to(const World& world, std::mt19937& random) {
  std::uint32_t ranks = 0;
  do {
    ranks = 1 + below(random, world.config.streams);
  } while (world.config.streams % ranks != 0 || world.config.batch_size % ranks != 0);
  return ranks;
}

constexpr std::uint32_t kWorlds = 1000;

TEST(Segments, every_item_has_its_uses_whatever_the_timing) {
  std::mt19937 random(1);
  std::uint64_t joints = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    const World world = any_world(random);
    const std::uint32_t ranks = dealt_to(world, random);
    Runner first(world, 0, 0, ranks);
    const Output output = first.run();
    ASSERT_EQ(rows_of(output), rows_of(Runner(world, 7 + number, 0, ranks).run())) << number;
    auto uses_of = uses_in(output);
    for (std::uint64_t pass = 0; pass < world.passes.size(); ++pass) {
      std::uint64_t uses = 0;
      for (std::uint64_t item = 0; item < first.items_of(pass); ++item) {
        ASSERT_GE((uses_of[{pass, item * ranks}]), std::floor(world.config.factor)) << number;
        uses += uses_of[{pass, item * ranks}];
      }
      const std::uint64_t streams = world.config.streams / ranks;
      if (world.uses != kUnknown) {
        ASSERT_EQ(uses, world.uses * streams) << number << ", " << pass;
      } else if (streams == 1) {
        ASSERT_EQ(uses, EchoFactor(world.config.factor).uses_of_pass(first.items_of(pass))) << number << ", " << pass;
      }
    }
    joints += output.positions.back().segment.streams.empty() ? 0 : 1;
  }
  EXPECT_GT(joints, kWorlds / 4);
}

TEST(Segments, a_run_is_the_same_for_any_number_of_ranks) {
  std::mt19937 random(2);
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    const World world = any_world(random);
    const std::uint32_t ranks = dealt_to(world, random);
    const auto whole = rows_of(Runner(world, number).run());
    std::vector<Rows> of_ranks;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      of_ranks.push_back(rows_of(Runner(world, number, rank, ranks).run()));
      ASSERT_EQ(of_ranks.back().size(), whole.size()) << number;
    }
    for (std::size_t batch = 0; batch < whole.size(); ++batch) {
      for (std::size_t row = 0; row < whole[batch].size(); ++row) {
        ASSERT_EQ(whole[batch][row], of_ranks[row % ranks][batch].at(row / ranks)) << number << ", " << batch;
      }
    }
  }
}

TEST(Segments, a_position_goes_on_and_tells_of_its_segment_only) {
  std::mt19937 random(3);
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    const World world = any_world(random);
    const std::uint32_t ranks = dealt_to(world, random);
    const std::uint32_t rank = below(random, ranks);
    const Output output = Runner(world, below(random, 9), rank, ranks).run();
    expect_to_go_on(world, output, random, rank, ranks, [](const PlanPosition&) {});
    ASSERT_FALSE(HasFailure()) << number;
  }
}

TEST(Segments, a_position_of_a_run_from_its_beginning_is_found_by_arithmetic) {
  std::mt19937 random(4);
  std::uint64_t skipped = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    World world = any_world(random);
    world.passes.assign(world.passes.size() + 8, world.passes[0]);
    if (world.passes[0] == 0 || (world.config.unique_in_batch && random() % 2 == 0)) {
      continue;
    }
    const std::uint32_t ranks = dealt_to(world, random);
    const std::uint32_t rank = below(random, ranks);
    const Output output = Runner(world, 0, rank, ranks).run();
    const std::size_t at = random() % output.batches.size();
    Runner next(world, 0, rank, ranks);
    next.seek({.epoch = kEpoch,
               .extent = output.positions[0].extent,
               .passes = {{.passes = world.passes.size(), .items = next.items_of(0)}},
               .ended = true,
               .iterations = output.positions[at].iterations,
               .batches = output.positions[at].batches});
    skipped += next.position().segment.passes > 0 ? 1 : 0;
    ASSERT_EQ(rows_of(output, at + 1), rows_of(next.run())) << number << ", " << at;
  }
  EXPECT_GT(skipped, kWorlds / 4);
}

TEST(Segments, epochs_after_a_joint_are_those_of_a_run_that_begins_there) {
  const World world{.config = {.capacity = 4, .factor = 2, .seed = 5, .segment_uses = 28, .batch_size = 2},
                    .passes = std::vector<std::uint64_t>(9, 7),  // two of them are a segment
                    .known = true};
  const auto whole = rows_of(Runner(world).run());
  Runner later(world);
  later.seek({.epoch = kEpoch,
              .extent = {.items = 7},
              .passes = {{.passes = 4, .items = 7}},
              .ended = false,
              .iterations = 4});
  const auto rest = rows_of(later.run());
  EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), whole.rbegin()));
  EXPECT_EQ(later.plan().position(5, 0).segment.passes, 4U);
}

}  // namespace
}  // namespace pyecho::test::planned::segments
