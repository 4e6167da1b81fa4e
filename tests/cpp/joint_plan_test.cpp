// Joint plans: several ranks with an adaptive factor, and what they agree on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/batch_plan.hpp"
#include "core/plan/schedule.hpp"

namespace pyecho::test {
namespace {

TEST(Schedule, takes_an_equal_part_of_what_is_left_before_each_batch) {
  Schedule schedule;
  EXPECT_FALSE(schedule.due(0, 0));
  schedule.extend(std::array<Knot, 2>{{{.batch = 3, .events = 8}, {.batch = 5, .events = 8}}});
  std::vector<std::uint64_t> parts;
  std::uint64_t taken = 0;
  for (std::uint64_t batch = 0; const auto due = schedule.due(batch, taken); ++batch) {
    parts.push_back(*due);
    taken += *due;
  }
  EXPECT_EQ(parts, (std::vector<std::uint64_t>{3, 3, 2, 0, 0}));
  EXPECT_EQ(schedule.knots(), (std::vector<Knot>{{.batch = 5, .events = 8}})) << "the horizon is kept";
  EXPECT_FALSE(schedule.due(5, taken));
}

TEST(Schedule, what_was_taken_beyond_it_counts_and_at_the_end_all_is_due) {
  Schedule schedule;
  schedule.extend(std::array<Knot, 2>{{{.batch = 2, .events = 5}, {.batch = Knot::kEver, .events = 9}}});
  EXPECT_EQ(schedule.due(0, 7), 0U);
  EXPECT_EQ(schedule.due(1, 2), 3U);
  EXPECT_EQ(schedule.due(2, 6), 3U);
  EXPECT_EQ(schedule.due(1000, 9), 0U);
}

// ---------------------------------------------------------------- ranks

struct Case {
  PlanConfig config;
  std::uint64_t steps = 0;         // batches of an iteration; 0: one pass
  std::vector<std::uint64_t> own;  // items of each rank's source
  std::uint64_t longest = 0;
};

std::uint32_t below(std::uint32_t bound, std::mt19937& random) { return static_cast<std::uint32_t>(random() % bound); }

Case case_of(std::uint32_t number) {
  std::mt19937 random(number);
  Case made;
  PlanConfig& config = made.config;
  config.stream_step = 2;
  config.batch_rows = 1 + below(5, random);
  config.capacity = config.batch_rows + below(9, random);
  config.min_uses = 1 + below(2, random);
  config.factor = config.min_uses + below(6, random);
  config.seed = random();
  config.unique_in_batch = random() % 3 == 0;
  config.max_age = random() % 3 == 0 ? 1 + random() % 9 : 0;
  made.steps = random() % 3 == 0 ? 1 + random() % 9 : 0;
  for (int rank = 0; rank < 2; ++rank) {
    made.own.push_back((made.steps > 0 ? 1 : 0) + random() % 60);
    made.longest = std::max(made.longest, made.own.back());
  }
  config.iteration_uses = made.steps * config.batch_rows;
  return made;
}

// Number of an item in the order of the input, and of its use.
using Row = std::pair<std::uint64_t, std::uint32_t>;

// A rank: a plan whose items come when the test wants.
class Rank {
 public:
  Rank(const Case& made, std::uint64_t rank, std::uint32_t slots)
      : made_(made), own_(made.own[rank]), plan_(with(made.config, rank, slots)), uses_(made.config.batch_rows) {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      free_.push_back(slot);
    }
    number_.resize(slots);
    plan_.begin(3, {.items = made.steps > 0 ? kUnknown : own_});
  }

  // Feeds an item, the end of a pass, or the end. False: nothing is left, or no slot.
  bool feed() {
    const std::uint64_t length = made_.steps > 0 ? own_ : made_.longest;
    if (plan_.ended()) {
      return false;
    }
    if (plan_.open_items() == length) {
      if (made_.steps > 0) {
        plan_.end_pass();
      } else {
        plan_.end_input();
      }
      return true;
    }
    if (free_.empty()) {
      return false;
    }
    number_[free_.back()] = plan_.fed();
    plan_.feed(free_.back());
    free_.pop_back();
    return true;
  }
  [[nodiscard]] std::uint64_t arrived() const { return plan_.fed() + (plan_.ended() ? 1 : 0); }

  // Draws as far as it comes.
  void draw() {
    while (!plan_.finished()) {
      std::uint32_t drawn = 0;
      const Outcome outcome = plan_.draw(uses_, drawn);
      plan_.take_left(
          [&](std::span<const std::uint32_t> slots) { free_.insert(free_.end(), slots.begin(), slots.end()); });
      if (outcome == Outcome::kEmpty) {
        ASSERT_EQ(drawn, 0U) << "what is decided before a batch suffices for all of it";
        return;
      }
      if (drawn == 0) {
        plan_.next_iteration();
        ++iterations;
        continue;
      }
      std::vector<Row> batch;
      for (const Use& use : std::span(uses_).first(drawn)) {
        const std::uint64_t of_pass = made_.steps > 0 ? use.source_index : number_[use.slot];
        EXPECT_EQ(use.additional(), of_pass >= own_);
        EXPECT_EQ(use.source_index, own_ == 0 ? 0 : of_pass % own_);
        const std::uint32_t ordinal = use.additional() ? ~use.ordinal : use.ordinal;
        EXPECT_LT(ordinal, made_.config.factor);
        batch.emplace_back(number_[use.slot], ordinal);
        if (use.last) {
          free_.push_back(use.slot);
        }
      }
      batches.push_back(std::move(batch));
      plan_.end_batch();
    }
  }

  [[nodiscard]] BatchPlan& plan() { return plan_; }
  std::vector<std::vector<Row>> batches;
  int iterations = 0;

 private:
  static PlanConfig with(PlanConfig config, std::uint64_t rank, std::uint32_t slots) {
    config.slots = slots;
    config.first_stream = rank;
    return config;
  }

  const Case& made_;
  const std::uint64_t own_;
  BatchPlan plan_;
  std::vector<Use> uses_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint64_t> number_;  // by slot
};

// Whatever arrives when, on ranks with other slots: the same decisions, and the same draws from equal pools.
TEST(JointPlan, ranks_with_the_same_looks_decide_and_draw_the_same) {
  for (std::uint32_t number = 0; number < 400; ++number) {
    SCOPED_TRACE(number);
    const Case made = case_of(number);
    std::mt19937 random(number + 1);
    std::array<Rank, 2> ranks{Rank(made, 0, made.config.capacity + 1 + below(40, random)),
                              Rank(made, 1, made.config.capacity + 1 + below(40, random))};
    std::uint64_t horizon = 1 + random() % 5;
    for (Rank& rank : ranks) {
      rank.plan().extend(std::array<Knot, 1>{{{.batch = horizon, .events = 0}}});
    }
    bool decided = false;
    for (int step = 0; step < 4000 && ranks[0].batches.size() + ranks[1].batches.size() < 200; ++step) {
      Rank& rank = ranks[random() % 2];
      for (std::uint64_t events = random() % (random() % 2 == 0 ? 3 : 20); events > 0 && rank.feed(); --events) {
      }
      rank.draw();
      // A look: behind any batch that both have, before or when their plans come to the horizon.
      if (!decided && random() % 4 == 0) {
        const std::uint64_t both = std::min(ranks[0].batches.size(), ranks[1].batches.size());
        if (both + 6 > horizon) {
          const std::uint64_t events = std::min(ranks[0].arrived(), ranks[1].arrived());
          horizon += 1 + random() % 9;
          decided = made.steps == 0 && events == made.longest + 1;
          for (Rank& each : ranks) {
            each.plan().extend(std::array<Knot, 1>{{{.batch = horizon, .events = events}}});
            if (decided) {
              each.plan().extend(std::array<Knot, 1>{{{.batch = Knot::kEver, .events = events}}});
            }
          }
        }
      }
    }
    const std::size_t common = std::min(ranks[0].batches.size(), ranks[1].batches.size());
    EXPECT_TRUE(made.longest == 0 || common > 0);
    for (std::size_t batch = 0; batch < common; ++batch) {
      ASSERT_EQ(ranks[0].batches[batch], ranks[1].batches[batch]) << batch;
    }
    const Decisions first = ranks[0].plan().decisions();
    const Decisions second = ranks[1].plan().decisions();
    const std::size_t decisions = std::min(first.values().size(), second.values().size());
    EXPECT_TRUE(std::ranges::equal(first.values().first(decisions), second.values().first(decisions)));
    if (made.steps == 0 && ranks[0].batches.size() + ranks[1].batches.size() < 200) {
      EXPECT_TRUE(ranks[0].plan().finished() && ranks[1].plan().finished());
      EXPECT_EQ(first, second);
    }
  }
}

TEST(JointPlan, goes_on_only_when_it_is_told_and_fills_its_pool_by_itself) {
  Case made;
  made.own = {100, 100};
  made.longest = 100;
  made.config.capacity = 4;
  made.config.factor = 8;
  made.config.stream_step = 2;
  made.config.min_uses = 1;
  made.config.batch_rows = 2;
  Rank rank(made, 0, 8);
  const auto batches = [&] {
    rank.draw();
    return rank.batches.size();
  };
  while (rank.feed()) {
  }
  EXPECT_EQ(batches(), 0U) << "nothing is decided";
  rank.plan().extend(std::array<Knot, 1>{{{.batch = 3, .events = 0}}});
  EXPECT_EQ(batches(), 3U) << "the pool was filled";
  EXPECT_EQ(rank.plan().decisions().values()[0], 4U);
  EXPECT_EQ(rank.plan().min_items(2), 8U) << "no item helps";
  rank.plan().extend(std::array<Knot, 1>{{{.batch = 5, .events = 10}}});
  EXPECT_EQ(batches(), 4U) << "before batch 3, items 4, 5 and 6, before the next one 7, 8 and 9: two to come";
  EXPECT_TRUE(rank.feed());
  EXPECT_EQ(batches(), 4U);
  EXPECT_TRUE(rank.feed());
  EXPECT_EQ(batches(), 5U);
  EXPECT_TRUE(std::ranges::equal(rank.plan().decisions().values(), std::array{4, 0, 0, 3, 3}));
}

}  // namespace
}  // namespace pyecho::test
