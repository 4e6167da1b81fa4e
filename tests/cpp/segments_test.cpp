// Segments: a run over many joints is exact, independent of timing and ranks, and goes on from any position.
#include "core/plan/segments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/replay.hpp"

namespace pyecho::test::segments {
namespace {

struct Row {
  std::uint64_t item;  // of the whole source, in its pass
  std::uint32_t use;
  bool operator==(const Row&) const = default;
};
using Batch = std::vector<Row>;

struct World {
  std::uint32_t shards = 1;
  std::uint32_t capacity = 4;    // of each stream
  std::uint32_t batch_size = 2;  // of all ranks
  double factor = 2;
  bool unique = false;
  bool even = false;
  std::vector<std::uint64_t> passes;  // items of each, of the whole source
  std::uint64_t uses = kUnknown;      // of a pass, of each stream
  bool known = false;                 // the number of items
  std::uint64_t steps = 0;            // batches of an iteration
  std::uint64_t segment_uses = 10;    // 0: the run has no joints
};

// The uses that a rank has drawn, and the position after each batch.
struct Output {
  std::vector<Batch> batches;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // iterations, and batches of the next
  std::vector<PlanPosition> positions;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> uses;  // by pass and item
};

class Rank {
 public:
  Rank(World world, std::uint32_t rank, std::uint32_t ranks, std::uint32_t timing)
      : world_(std::move(world)), rank_(rank), ranks_(ranks), random_(timing), is_eager_(timing > 0), plan_(config()) {
    plan_.begin(kEpoch, extent());
    free_.resize(plan_.config().slots);
    std::iota(free_.rbegin(), free_.rend(), 0U);
  }
  // Goes to a position.
  void seek(PlanPosition position) {
    iterations_ = position.iterations;
    batches_ = position.batches;
    Replay replay(plan_, rows(), std::move(position));
    while (!replay.advance(7)) {
    }
    free_ = replay.free_slots();
    pass_ = replay.passes_fed();
  }
  Output run() {
    Output output;
    std::vector<Use> batch(rows());
    std::uint32_t filled = 0;
    while (!plan_.finished()) {
      while (is_eager_ && random_() % 3 != 0 && feed()) {
      }
      std::uint32_t drawn = 0;
      const std::uint32_t wanted =
          is_eager_ ? 1 + static_cast<std::uint32_t>(random_() % (rows() - filled)) : rows() - filled;
      const Outcome outcome = plan_.draw(std::span(batch).subspan(filled, wanted), drawn);
      for (const Use& use : std::span(batch).subspan(filled, drawn)) {
        ++output.uses[{passes_[use.slot], use.source_index}];
        if (use.last) {
          free_.push_back(use.slot);
        }
      }
      filled += drawn;
      if (outcome == Outcome::kEmpty) {
        if (!feed()) {
          ADD_FAILURE() << "the plan waits for an item, and no slot is free";
          return output;
        }
      } else if (filled == rows() || (outcome == Outcome::kEnd && filled > 0)) {
        plan_.end_batch();
        Batch& taken = output.batches.emplace_back();
        for (const Use& use : std::span(batch).first(std::exchange(filled, 0))) {
          taken.push_back({use.source_index * ranks_ + rank_, use.ordinal});
        }
        ++batches_;
        output.taken.emplace_back(iterations_, batches_);
        output.positions.push_back(position());
      } else if (outcome == Outcome::kEnd) {
        plan_.next_iteration();
        ++iterations_;
        batches_ = 0;
      }
    }
    EXPECT_EQ(free_.size(), plan_.config().slots);
    return output;
  }
  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] PlanPosition position() const {
    PlanPosition at = plan_.position(iterations_, batches_ * rows());
    at.feed_all = true;
    at.iterations = iterations_;
    at.batches = batches_;
    return at;
  }
  [[nodiscard]] std::uint64_t items_of(std::uint64_t pass) const {
    return share_of(world_.passes[pass], rank_, ranks_);
  }

  static constexpr std::uint64_t kEpoch = 3;

 private:
  [[nodiscard]] std::uint32_t streams() const { return world_.shards / ranks_; }
  [[nodiscard]] std::uint32_t rows() const { return world_.batch_size / ranks_; }
  [[nodiscard]] Extent extent() const {
    return {.items = world_.known ? items_of(0) : kUnknown,
            .uses = world_.uses == kUnknown ? kUnknown : world_.uses * streams()};
  }
  [[nodiscard]] PlanConfig config() const {
    const std::uint32_t capacity = world_.capacity * streams();
    return {.capacity = capacity,
            .slots = static_cast<std::uint32_t>(capacity + Plan::waiting_slots(streams(), capacity)),
            .factor = world_.factor,
            .seed = 5,
            .unique_in_batch = world_.unique,
            .iteration_uses = world_.steps * rows(),
            .even_factor = world_.even,
            .segment_uses = world_.segment_uses,
            .streams = streams(),
            .first_stream = rank_,
            .stream_step = ranks_,
            .batch_size = rows()};
  }
  bool feed() {
    if (plan_.ended() || (plan_.open_items() < items_of(pass_) && free_.empty())) {
      return false;
    }
    if (plan_.open_items() < items_of(pass_)) {
      const std::uint32_t slot = free_.back();
      free_.pop_back();
      passes_[slot] = pass_;
      plan_.feed(slot);
    } else if (++pass_ == world_.passes.size()) {
      EXPECT_TRUE(plan_.end_input());
    } else {
      plan_.end_pass();
    }
    return true;
  }

  const World world_;
  const std::uint32_t rank_;
  const std::uint32_t ranks_;
  std::mt19937 random_;
  const bool is_eager_;
  Plan plan_;
  std::vector<std::uint32_t> free_;
  std::map<std::uint32_t, std::uint64_t> passes_;  // by slot
  std::uint64_t pass_ = 0;
  std::uint64_t iterations_ = 0;
  std::uint64_t batches_ = 0;
};

std::uint32_t below(std::mt19937& random, std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); }

World any_world(std::mt19937& from) {
  const auto below = [&](std::uint32_t bound) { return segments::below(from, bound); };
  const std::array<std::uint32_t, 5> shards{1, 1, 2, 4, 6};
  const std::array<double, 4> factors{1, 2, 2.5, 3.3};
  World world{.shards = shards.at(below(5)),
              .capacity = 1 + below(below(2) == 0 ? 6 : 60),
              .batch_size = 1 + below(5),
              .factor = factors.at(below(4)),
              .passes = std::vector<std::uint64_t>(1 + below(8), 0),
              .steps = below(2) * (1 + below(6)),
              .segment_uses = below(4) == 0 ? 0 : 1 + below(30)};
  if (below(2) == 0) {
    world.batch_size *= world.shards;
  } else {
    world.steps *= world.shards;
  }
  world.known = below(2) > 0 || world.shards > 1;
  world.even = world.shards > 1;
  const std::uint64_t items = (2 + below(12)) * (below(4) == 0 ? 5 : 1);
  for (std::uint64_t& pass : world.passes) {
    pass = world.shards * items;
    if (!world.known) {
      pass = below(3) == 0 ? 0 : 1 + below(12);
    }
  }
  world.passes[0] = std::max<std::uint64_t>(1, world.passes[0]);
  if (world.shards > 1 && world.steps == 0) {
    const std::uint64_t fewer = below(world.shards);
    for (std::uint64_t& pass : world.passes) {
      pass -= fewer;
    }
    world.uses = static_cast<std::uint64_t>(static_cast<double>(items) * world.factor + 0.5) + below(2) * below(7);
  }
  if (world.shards == 1 && world.steps == 0 && world.capacity >= world.batch_size) {
    world.unique = below(3) == 0;
  }
  return world;
}

std::uint32_t dealt_to(const World& world, std::mt19937& random) {
  std::uint32_t ranks = world.shards;
  do {
    ranks = 1 + below(random, world.shards);
  } while (world.shards % ranks != 0 || world.batch_size % ranks != 0);
  return ranks;
}

constexpr std::uint32_t kWorlds = 1000;

TEST(Segments, every_item_has_its_uses_whatever_the_timing) {
  std::mt19937 random(1);
  std::uint64_t joints = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    const World world = any_world(random);
    const std::uint32_t ranks = dealt_to(world, random);
    Rank first(world, 0, ranks, 0);
    const Output output = first.run();
    ASSERT_EQ(output.batches, Rank(world, 0, ranks, 7 + number).run().batches) << number;
    for (std::uint64_t pass = 0; pass < world.passes.size(); ++pass) {
      std::uint64_t uses = 0;
      for (std::uint64_t item = 0; item < first.items_of(pass); ++item) {
        ASSERT_GE(output.uses.at({pass, item}), static_cast<std::uint32_t>(world.factor)) << number;
        uses += output.uses.at({pass, item});
      }
      const std::uint64_t streams = world.shards / ranks;
      const auto wanted =
          world.uses != kUnknown ? world.uses * streams
          : streams == 1 ? static_cast<std::uint64_t>(static_cast<double>(first.items_of(pass)) * world.factor + 0.5)
                         : uses;
      ASSERT_EQ(uses, wanted) << number << ", " << pass;
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
    const std::vector<Batch> whole = Rank(world, 0, 1, number).run().batches;
    std::vector<std::vector<Batch>> of_ranks;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      of_ranks.push_back(Rank(world, rank, ranks, number).run().batches);
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
    const Output output = Rank(world, rank, ranks, below(random, 9)).run();
    std::size_t after = 0;  // batches before the position
    Rank resumed(world, rank, ranks, below(random, 9));
    std::vector<PlanPosition> positions = output.positions;
    while (after < output.batches.size()) {
      const std::size_t at = random() % (output.batches.size() - after);
      after += at + 1;
      Rank next(world, rank, ranks, below(random, 9));
      next.seek(positions[at]);
      const Output rest = next.run();
      ASSERT_EQ(std::vector(output.batches.begin() + static_cast<std::ptrdiff_t>(after), output.batches.end()),
                rest.batches)
          << number << ", " << after;
      positions = rest.positions;  // the next state is one of a resumed run
    }
  }
}

TEST(Segments, a_position_of_a_run_from_its_beginning_is_found_by_arithmetic) {
  std::mt19937 random(4);
  std::uint64_t skipped = 0;
  for (std::uint32_t number = 0; number < kWorlds; ++number) {
    World world = any_world(random);
    world.passes.assign(world.passes.size() + 8, world.passes[0]);
    if (world.passes[0] == 0 || (world.unique && random() % 2 == 0)) {
      continue;
    }
    const std::uint32_t ranks = dealt_to(world, random);
    const std::uint32_t rank = below(random, ranks);
    const Output output = Rank(world, rank, ranks, 0).run();
    const std::size_t at = random() % output.batches.size();
    Rank next(world, rank, ranks, 0);
    const std::uint64_t count = world.passes.size();
    PlanPosition position{.epoch = Rank::kEpoch,
                          .extent = output.positions[0].extent,
                          .passes = {{.passes = count, .items = next.items_of(0)}},
                          .ended = true,
                          .iterations = output.taken[at].first,
                          .batches = output.taken[at].second};
    next.seek(position);
    skipped += next.position().segment.passes > 0 ? 1 : 0;
    ASSERT_EQ(std::vector(output.batches.begin() + static_cast<std::ptrdiff_t>(at + 1), output.batches.end()),
              next.run().batches)
        << number << ", " << at;
  }
  EXPECT_GT(skipped, kWorlds / 4);
}

TEST(Segments, epochs_after_a_joint_are_those_of_a_run_that_begins_there) {
  const World world{.passes = std::vector<std::uint64_t>(9, 7), .known = true, .segment_uses = 28};  // of two passes
  const Output output = Rank(world, 0, 1, 0).run();
  Rank later(world, 0, 1, 0);
  later.seek({.epoch = Rank::kEpoch,
              .extent = {.items = 7},
              .passes = {{.passes = 4, .items = 7}},
              .ended = false,
              .iterations = 4});
  const std::vector<Batch> rest = later.run().batches;
  EXPECT_EQ(std::vector(output.batches.end() - static_cast<std::ptrdiff_t>(rest.size()), output.batches.end()), rest);
  EXPECT_EQ(later.plan().position(5, 0).segment.passes, 4U);
}

}  // namespace
}  // namespace pyecho::test::segments
