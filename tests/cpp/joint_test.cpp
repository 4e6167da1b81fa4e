// Joint plans: ranks take the same decisions and have equally many rows, however early their items arrive.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "core/plan/batch_plan.hpp"
#include "core/plan/schedule.hpp"
#include "core/stage/echo_buffer.hpp"

namespace pyecho::test {
namespace {

TEST(Schedule, SpreadsItemsOverTheBatchesBetweenTwoKnots) {
  Schedule schedule;
  EXPECT_EQ(schedule.items_before(0), std::nullopt);
  schedule.restart({{.batch = 0, .items = 0}, {.batch = 2, .items = 0}});
  schedule.extend({.batch = 5, .items = 10});
  schedule.extend({.batch = 5, .items = 99});  // ignored: two looks behind one batch
  schedule.extend({.batch = 6, .items = 7});   // never fewer
  std::vector<std::optional<std::uint64_t>> found;
  for (std::uint64_t batch = 0; batch < 7; ++batch) {
    found.push_back(schedule.items_before(batch));
  }
  EXPECT_EQ(found, (std::vector<std::optional<std::uint64_t>>{0, 0, 3, 6, 10, 10, std::nullopt}));
  EXPECT_EQ(schedule.knots().back(), (Schedule::Knot{.batch = 6, .items = 10}));
}

struct Rank {
  BatchPlan plan;
  std::uint64_t items;
  std::uint64_t fed = 0;
  bool ended = false;
  std::vector<std::uint32_t> free{};
  std::set<std::uint32_t> held{};  // slots
  std::vector<std::uint32_t> rows{};
  std::uint64_t own = 0;
  std::uint64_t additional = 0;
};

void release(Rank& rank, std::uint32_t slot) {
  ASSERT_EQ(rank.held.erase(slot), 1U) << "a slot is freed once";
  rank.free.push_back(slot);
}

// Draws a batch if one can be made. Returns false at the end.
bool step(Rank& rank, std::uint32_t batch_rows, std::mt19937& random, bool feeds) {
  if (feeds && !rank.free.empty() && rank.fed < rank.items) {
    rank.held.insert(rank.free.back());
    rank.plan.feed(rank.free.back());
    rank.free.pop_back();
    ++rank.fed;
  } else if (feeds && rank.fed == rank.items && !rank.ended) {
    rank.ended = true;
    rank.plan.end_input();
  }
  if (random() % 3 == 0) {
    return true;
  }
  std::vector<Use> uses(batch_rows);
  std::uint32_t drawn = 0;
  if (rank.plan.ready() == Outcome::kEmpty) {
    rank.plan.take_left([&](auto slots) { std::ranges::for_each(slots, [&](auto slot) { release(rank, slot); }); });
    return true;
  }
  const Outcome outcome = rank.plan.draw(uses, drawn);
  rank.plan.take_left([&](auto slots) { std::ranges::for_each(slots, [&](auto slot) { release(rank, slot); }); });
  for (const Use& use : std::span(uses).first(drawn)) {
    EXPECT_TRUE(rank.held.contains(use.slot));
    ++(use.additional() ? rank.additional : rank.own);
    if (use.last) {
      release(rank, use.slot);
    }
  }
  if (drawn > 0) {
    rank.plan.end_batch();
    rank.rows.push_back(drawn);
  }
  return drawn > 0 || outcome != Outcome::kEnd;
}

TEST(JointPlan, RanksDecideAlikeWhateverArrivesWhen) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t rows = 1 + random() % 6;
    const std::uint32_t capacity = rows + random() % 20;
    const std::uint32_t min_uses = 1 + random() % 2;
    const std::vector<std::uint64_t> lengths{random() % 2 == 0 ? 80U : 1U + random() % 80, 80};
    std::deque<Rank> ranks;
    for (std::uint64_t number = 0; number < lengths.size(); ++number) {
      PlanConfig config{.capacity = capacity,
                        .factor = static_cast<double>(min_uses + seed % 5),
                        .seed = seed,
                        .unique_in_batch = seed % 3 == 0,
                        .first_stream = number,
                        .stream_step = 2,
                        .min_uses = min_uses,
                        .max_age = seed % 4 == 0 ? 7U : 0U,
                        .batch_rows = rows,
                        .joint = true};
      config.slots = capacity + 4 + static_cast<std::uint32_t>(config.joint_slots());
      ranks.push_back({.plan = BatchPlan(config), .items = lengths[number]});
      for (std::uint32_t slot = 0; slot < config.slots; ++slot) {
        ranks.back().free.push_back(slot);
      }
      ranks.back().plan.begin(0, {.items = lengths[number], .total_items = 80});
    }
    std::uint64_t batch = 2;
    std::vector<bool> going(ranks.size(), true);
    for (std::uint32_t turn = 0; turn < 200'000 && (going[0] || going[1]); ++turn) {
      for (std::size_t number = 0; number < ranks.size(); ++number) {
        going[number] = going[number] && step(ranks[number], rows, random, random() % (number + 2) == 0);
      }
      if (turn % 20 == 0) {
        const auto arrived = [](const Rank& rank) { return rank.ended ? 80 : rank.fed; };
        const Schedule::Knot knot{.batch = ++batch, .items = std::min(arrived(ranks[0]), arrived(ranks[1]))};
        ranks[0].plan.schedule().extend(knot);
        ranks[1].plan.schedule().extend(knot);
      }
    }
    ASSERT_FALSE(going[0] || going[1]) << seed;
    EXPECT_EQ(ranks[0].rows, ranks[1].rows) << seed;
    EXPECT_EQ(ranks[0].plan.decisions(), ranks[1].plan.decisions()) << seed;
    for (const Rank& rank : ranks) {
      EXPECT_GE(rank.own, rank.items * min_uses) << seed;
      EXPECT_LE(rank.own, rank.items * (min_uses + seed % 5)) << seed;
      EXPECT_EQ(rank.additional > 0, rank.items < 80) << seed;
    }
  }
}

// The consumer extends the schedule while a worker waits for that.
TEST(JointBuffer, AWorkerIsWokenByAKnot) {
  constexpr std::uint64_t kItems = 3000;
  EchoBufferConfig config;
  config.leaf_bytes = {8};
  config.batch_rows = 4;
  config.capacity = 16;
  config.factor = 3;
  config.min_uses = 1;
  config.joint = true;
  config.threads = 2;
  EchoBuffer buffer(config);
  ASSERT_EQ(buffer.begin(0, {.items = kItems, .total_items = kItems}), Outcome::kOk);
  std::thread producer([&] {
    Reservation place{};
    for (std::uint64_t item = 0; item < kItems && buffer.reserve(place, kNever) == Outcome::kOk; ++item) {
      buffer.commit(place);
    }
    buffer.close();
  });
  std::uint64_t uses = 0;
  for (std::uint64_t batch = 1;; ++batch) {
    Lease lease;
    if (buffer.acquire(lease, kNever) != Outcome::kOk) {
      break;
    }
    uses += lease.rows();
    buffer.extend({.batch = batch + 2, .items = buffer.closed() ? kItems : buffer.accepted()});
  }
  producer.join();
  EXPECT_TRUE(buffer.at_end());
  EXPECT_GE(uses, kItems);
  EXPECT_LE(uses, 3 * kItems);
}

}  // namespace
}  // namespace pyecho::test
