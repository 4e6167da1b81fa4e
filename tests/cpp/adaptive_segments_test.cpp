// Segments with an adaptive factor: items keep their bounds over joints, the log decides all, and a position goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/replay.hpp"

namespace pyecho::test::adaptive_segments {
namespace {

struct Row {
  std::uint64_t pass;
  std::uint64_t item;  // in its pass
  std::uint32_t use;
  bool operator==(const Row&) const = default;
};
using Batch = std::vector<Row>;

struct World {
  PlanConfig config;
  std::vector<std::uint64_t> passes;  // items of each
};

struct Output {
  std::vector<Batch> batches;
  std::vector<std::uint64_t> iterations;  // of each batch
  std::uint64_t ended = 0;                // iterations of the run
  std::vector<PlanPosition> positions;    // after each batch
  DecisionLog log;
};

constexpr std::uint64_t kEpoch = 3;

class Runner {
 public:
  // `keeps_up`: the source, so that no batch is awaited.
  Runner(const World& world, std::uint32_t timing, bool keeps_up = false)
      : passes_(world.passes), random_(timing), keeps_up_(keeps_up), plan_(world.config) {
    plan_.begin(kEpoch, {});
    free_.resize(world.config.slots);
    std::iota(free_.rbegin(), free_.rend(), 0U);
    eager_ = 1 + random_() % 4;
  }
  // Goes to a position.
  void seek(PlanPosition position) {
    iterations_ = position.iterations;
    batches_ = position.batches;
    Replay replay(plan_, plan_.config().batch_size, std::move(position));
    while (!replay.advance(3)) {
    }
    free_ = replay.free_slots();
    pass_ = replay.passes_fed();
    for (const auto& [number, slot] : replay.items()) {
      pass_of_[slot] = kUnknown;  // known by the others of its batch
    }
  }
  Output run() {
    Output output;
    std::vector<Use> batch(plan_.config().batch_size);
    std::uint32_t filled = 0;
    while (!plan_.finished()) {
      while ((keeps_up_ || random_() % 4 < eager_ % 4) && feed()) {
      }
      std::uint32_t drawn = 0;
      const bool awaited = !keeps_up_ && random_() % 2 == 0;
      const Outcome outcome = plan_.draw(std::span(batch).subspan(filled), drawn, awaited);
      plan_.take_left(
          [&](std::span<const std::uint32_t> slots) { free_.insert(free_.end(), slots.begin(), slots.end()); });
      for (const Use& use : std::span(batch).subspan(filled, drawn)) {
        rows_.push_back({pass_of_[use.slot], use.source_index, use.ordinal});
        if (use.last) {
          free_.push_back(use.slot);
        }
      }
      filled += drawn;
      if (outcome == Outcome::kEmpty) {
        if (!feed() && (awaited || keeps_up_)) {
          ADD_FAILURE() << "the plan waits for an item, and no slot is free";
          return output;
        }
      } else if (filled == batch.size() || (outcome == Outcome::kEnd && filled > 0)) {
        plan_.end_batch();
        filled = 0;
        output.batches.push_back(std::exchange(rows_, {}));
        output.iterations.push_back(iterations_);
        ++batches_;
        output.positions.push_back(position());
      } else if (outcome == Outcome::kEnd) {
        plan_.next_iteration();
        ++iterations_;
        batches_ = 0;
      }
    }
    plan_.each_log([&](const SegmentName& segment, const Decisions& of_segment) {
      output.log[segment] = of_segment;
      return true;
    });
    output.ended = iterations_;
    EXPECT_FALSE(plan_.diverged());
    EXPECT_EQ(free_.size(), plan_.config().slots);
    return output;
  }

 private:
  [[nodiscard]] PlanPosition position() const {
    PlanPosition at = plan_.position(iterations_, batches_ * plan_.config().batch_size);
    at.feed_all = true;
    at.iterations = iterations_;
    at.batches = batches_;
    return at;
  }
  bool feed() {
    if (plan_.ended() || (plan_.open_items() < passes_[pass_] && free_.empty())) {
      return false;
    }
    if (plan_.open_items() < passes_[pass_]) {
      const std::uint32_t slot = free_.back();
      free_.pop_back();
      pass_of_[slot] = pass_;
      plan_.feed(slot);
    } else if (++pass_ == passes_.size()) {
      EXPECT_TRUE(plan_.end_input());
    } else {
      plan_.end_pass();
    }
    return true;
  }

  const std::vector<std::uint64_t> passes_;
  std::mt19937 random_;
  const bool keeps_up_;
  std::uint64_t eager_ = 0;
  Plan plan_;
  std::vector<std::uint32_t> free_;
  std::map<std::uint32_t, std::uint64_t> pass_of_;  // by slot
  Batch rows_;
  std::uint64_t pass_ = 0;
  std::uint64_t iterations_ = 0;
  std::uint64_t batches_ = 0;
};

World any_world(std::mt19937& random) {
  const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
  const std::uint32_t rows = 1 + below(6);
  const std::uint32_t min_uses = 1 + below(3);
  const std::uint32_t capacity = rows + below(20);
  World world{.config = {.capacity = capacity,
                         .slots = capacity + 2 * rows,
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

// Rows without their pass, which a run that was resumed does not know of all.
std::vector<std::vector<std::pair<std::uint64_t, std::uint32_t>>> items_of(std::span<const Batch> batches) {
  std::vector<std::vector<std::pair<std::uint64_t, std::uint32_t>>> found;
  for (const Batch& batch : batches) {
    auto& rows = found.emplace_back();
    for (const Row& row : batch) {
      rows.emplace_back(row.item, row.use);
    }
  }
  return found;
}

constexpr std::uint32_t kWorlds = 1500;

TEST(AdaptiveSegments, items_keep_their_bounds_and_batches_are_whole) {
  std::mt19937 random(1);
  std::uint64_t joints = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    const World world = any_world(random);
    const Output output = Runner(world, number).run();
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> uses;
    for (std::size_t at = 0; at < output.batches.size(); ++at) {
      const Batch& batch = output.batches[at];
      std::set<std::pair<std::uint64_t, std::uint64_t>> distinct;
      for (const Row& row : batch) {
        ASSERT_EQ(row.use, (uses[{row.pass, row.item}]++)) << number;
        distinct.emplace(row.pass, row.item);
      }
      ASSERT_TRUE(!world.config.unique_in_batch || distinct.size() == batch.size()) << number << ", " << at;
      const bool drains = output.positions[at].ended;
      ASSERT_TRUE(batch.size() == world.config.batch_size || drains) << number << ", " << at;
    }
    for (std::uint64_t pass = 0; pass < world.passes.size(); ++pass) {
      for (std::uint64_t item = 0; item < world.passes[pass]; ++item) {
        const std::uint32_t had = uses[{pass, item}];
        ASSERT_TRUE(had >= world.config.min_uses && had <= world.config.factor) << number << ": " << had;
      }
    }
    if (world.config.iteration_uses == 0) {
      ASSERT_EQ(output.ended, world.passes.size()) << number;
    }
    const bool has_joints = !world.config.unique_in_batch || world.config.min_uses == 1;
    ASSERT_TRUE(has_joints || output.log.size() == 1) << number;
    joints += output.log.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(joints, kWorlds / 2);
}

TEST(AdaptiveSegments, a_source_that_keeps_up_has_the_least_uses) {
  std::mt19937 random(4);
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    World world = any_world(random);
    world.config.max_age = 0;
    const Output output = Runner(world, number, true).run();
    std::uint64_t uses = 0;
    for (const Batch& batch : output.batches) {
      uses += batch.size();
    }
    const std::uint64_t items = std::accumulate(world.passes.begin(), world.passes.end(), std::uint64_t{0});
    ASSERT_EQ(uses, items * world.config.min_uses) << number;
  }
}

TEST(AdaptiveSegments, the_log_decides_all) {
  std::mt19937 random(2);
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    World world = any_world(random);
    const Output output = Runner(world, number).run();
    world.config.replay = std::make_shared<const DecisionLog>(output.log);
    const Output again = Runner(world, 7 + number).run();
    ASSERT_EQ(output.batches, again.batches) << number;
    ASSERT_EQ(output.iterations, again.iterations) << number;
    ASSERT_EQ(output.ended, again.ended) << number;
    ASSERT_EQ(output.log, again.log) << number;
  }
}

TEST(AdaptiveSegments, a_position_goes_on_and_tells_of_its_segment_only) {
  std::mt19937 random(3);
  std::uint64_t skipped = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    World world = any_world(random);
    const Output output = Runner(world, number).run();
    world.config.replay =
        std::make_shared<const DecisionLog>(output.log);  // so that runs decide alike after the position
    std::size_t after = 0;                                // batches before the position
    std::vector<PlanPosition> positions = output.positions;
    while (after < output.batches.size()) {
      const std::size_t at = random() % (output.batches.size() - after);
      const std::size_t decided = positions[at].decisions.size();
      skipped += positions[at].segment.streams.empty() ? 0 : 1;
      after += at + 1;
      Runner next(world, 11 * number);
      next.seek(positions[at]);
      const Output rest = next.run();
      ASSERT_EQ(items_of(std::span(output.batches).subspan(after)), items_of(rest.batches)) << number << ", " << after;
      ASSERT_TRUE(std::ranges::equal(std::span(output.iterations).subspan(after), rest.iterations)) << number;
      ASSERT_EQ(output.ended, rest.ended) << number;
      for (const auto& [segment, decisions] : rest.log) {
        ASSERT_EQ(decisions, output.log.at(segment)) << number;
      }
      const std::uint64_t longest = *std::ranges::max_element(world.passes);
      const double of_segment = static_cast<double>(world.config.segment_uses) + 2;
      const double items = of_segment + static_cast<double>(longest + world.config.slots) + 8;
      const bool has_joints = !world.config.unique_in_batch || world.config.min_uses == 1;
      ASSERT_TRUE(!has_joints || static_cast<double>(decided) <= 2 * items * world.config.factor + 8) << number;
      positions = rest.positions;  // the next state is one of a resumed run
    }
  }
  EXPECT_GT(skipped, kWorlds);
}

}  // namespace
}  // namespace pyecho::test::adaptive_segments
