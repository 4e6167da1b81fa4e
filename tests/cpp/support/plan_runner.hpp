// Runs the plan of one rank over a world of passes, with any timing, from its beginning or from a position.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/replay.hpp"

namespace pyecho::test::planned {

struct Row {
  std::uint64_t pass;  // kUnknown: the item was there at the position
  std::uint64_t item;  // of the whole source, in its pass
  std::uint32_t use;
};
using Batch = std::vector<Row>;

struct World {
  PlanConfig config;                  // of all ranks together; with `min_uses` the factor is adaptive
  std::vector<std::uint64_t> passes;  // items of each, of the whole source
  std::uint64_t uses = kUnknown;      // of a pass, of each stream
  bool known = false;                 // the number of items
};

constexpr std::uint64_t kEpoch = 3;

struct Output {
  std::vector<Batch> batches;
  std::vector<PlanPosition> positions;  // after each batch
  std::uint64_t ended = 0;              // iterations of the run
  DecisionLog log;
};

enum class Source : std::uint8_t { kLate, kAtAnyTime, kKeepsUp };

class Runner {
 public:
  explicit Runner(const World& world, std::uint32_t timing = 0, std::uint32_t rank = 0, std::uint32_t ranks = 1)
      : Runner(world, timing == 0 ? Source::kLate : Source::kAtAnyTime, timing, rank, ranks) {}
  Runner(const World& world, Source source, std::uint32_t timing = 0, std::uint32_t rank = 0, std::uint32_t ranks = 1)
      : world_(world), source_(source), rank_(rank), ranks_(ranks), random_(timing), plan_(config()) {
    const Extent extent{.items = world.known ? items_of(0) : kUnknown,
                        .uses = world.uses == kUnknown ? kUnknown : world.uses * plan_.config().streams};
    plan_.begin(kEpoch, extent);
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
    for (const auto& [number, slot] : replay.items()) {
      pass_of_[slot] = kUnknown;
    }
  }
  Output run() {
    Output output;
    const bool adaptive = plan_.config().min_uses > 0;
    std::vector<Use> batch(rows());
    std::uint32_t filled = 0;
    while (!plan_.finished()) {
      while (source_ != Source::kLate && (source_ == Source::kKeepsUp || random_() % 3 != 0) && feed()) {
      }
      const bool awaited = !adaptive || (source_ != Source::kKeepsUp && random_() % 2 == 0);
      const bool in_parts = !adaptive && source_ == Source::kAtAnyTime;
      const auto missing = static_cast<std::uint32_t>(rows() - filled);
      const std::uint32_t wanted = in_parts ? 1 + static_cast<std::uint32_t>(random_() % missing) : missing;
      std::uint32_t drawn = 0;
      const Outcome outcome = plan_.draw(std::span(batch).subspan(filled, wanted), drawn, awaited);
      plan_.take_left(
          [&](std::span<const std::uint32_t> slots) { free_.insert(free_.end(), slots.begin(), slots.end()); });
      for (const Use& use : std::span(batch).subspan(filled, drawn)) {
        taken_.push_back({pass_of_[use.slot], use.source_index * ranks_ + rank_, use.ordinal});
        if (use.last) {
          free_.push_back(use.slot);
        }
      }
      filled += drawn;
      if (outcome == Outcome::kEmpty) {
        if (!feed() && (awaited || source_ == Source::kKeepsUp)) {
          ADD_FAILURE() << "the plan waits for an item, and no slot is free";
          return output;
        }
      } else if (filled == rows() || (outcome == Outcome::kEnd && filled > 0)) {
        plan_.end_batch();
        filled = 0;
        ++batches_;
        output.batches.push_back(std::exchange(taken_, {}));
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

 private:
  [[nodiscard]] std::uint32_t rows() const { return plan_.config().batch_size; }
  // The share of the rank.
  [[nodiscard]] PlanConfig config() const {
    PlanConfig config = world_.config;
    config.streams /= ranks_;
    config.capacity /= ranks_;
    config.batch_size /= ranks_;
    config.iteration_uses /= ranks_;
    config.first_stream = rank_;
    config.stream_step = ranks_;
    config.slots =
        config.min_uses > 0
            ? config.capacity + 2 * config.batch_size
            : static_cast<std::uint32_t>(config.capacity + Plan::waiting_slots(config.streams, config.capacity));
    return config;
  }
  bool feed() {
    if (plan_.ended() || (plan_.open_items() < items_of(pass_) && free_.empty())) {
      return false;
    }
    if (plan_.open_items() < items_of(pass_)) {
      const std::uint32_t slot = free_.back();
      free_.pop_back();
      pass_of_[slot] = pass_;
      plan_.feed(slot);
    } else if (++pass_ == world_.passes.size()) {
      EXPECT_TRUE(plan_.end_input());
    } else {
      plan_.end_pass();
    }
    return true;
  }

  const World world_;
  const Source source_;
  const std::uint32_t rank_;
  const std::uint32_t ranks_;
  std::mt19937 random_;
  Plan plan_;
  std::vector<std::uint32_t> free_;
  std::map<std::uint32_t, std::uint64_t> pass_of_;  // by slot
  Batch taken_;
  std::uint64_t pass_ = 0;
  std::uint64_t iterations_ = 0;
  std::uint64_t batches_ = 0;
};

// Items and uses, without their passes: a run that was resumed does not know all of them.
using Rows = std::vector<std::vector<std::pair<std::uint64_t, std::uint32_t>>>;

inline Rows rows_of(const Output& output, std::size_t after = 0) {
  Rows found;
  for (const Batch& batch : std::span(output.batches).subspan(after)) {
    auto& rows = found.emplace_back();
    for (const Row& row : batch) {
      rows.emplace_back(row.item, row.use);
    }
  }
  return found;
}

// By pass and item.
inline std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> uses_in(const Output& output) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> uses;
  for (const Batch& batch : output.batches) {
    for (const Row& row : batch) {
      EXPECT_EQ(row.use, (uses[{row.pass, row.item}]++));
    }
  }
  return uses;
}

// Goes on from positions of runs that were resumed themselves, and checks what follows each.
template <class Check>
void expect_to_go_on(const World& world, const Output& output, std::mt19937& random, std::uint32_t rank,
                     std::uint32_t ranks, const Check& check) {
  std::vector<PlanPosition> positions = output.positions;
  for (std::size_t after = 0; after < output.batches.size();) {
    const std::size_t at = random() % (output.batches.size() - after);
    check(positions[at]);
    after += at + 1;
    Runner next(world, static_cast<std::uint32_t>(random() % 9), rank, ranks);
    next.seek(positions[at]);
    const Output rest = next.run();
    ASSERT_EQ(rows_of(output, after), rows_of(rest)) << after;
    ASSERT_EQ(output.ended, rest.ended) << after;
    for (std::size_t batch = 0; batch < rest.positions.size(); ++batch) {
      ASSERT_EQ(output.positions[after + batch].iterations, rest.positions[batch].iterations) << after;
    }
    for (const auto& [segment, decisions] : rest.log) {
      ASSERT_EQ(decisions, output.log.at(segment)) << after;
    }
    positions = rest.positions;
  }
}

}  // namespace pyecho::test::planned
