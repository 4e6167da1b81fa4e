// Streams of a run, and their additional uses: a model of what BatchPlan promises to several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/plan/batch_plan.hpp"

namespace pyecho::test {
namespace {

struct Row {
  std::uint64_t item;  // of the whole source
  std::int32_t use;
  bool operator==(const Row&) const = default;
};
using Batches = std::vector<std::vector<Row>>;

struct World {
  std::uint32_t shards = 1;
  std::uint32_t capacity = 8;    // of each stream
  std::uint32_t batch_rows = 4;  // of each stream
  double factor = 2.0;
  bool unique_in_batch = false;
  std::uint64_t items = 0;
  std::uint64_t total_uses = 0;  // of each stream; kUnknown: without end
  std::uint64_t batches = 0;     // to draw at most
};

// Draws the batches of one of `ranks` ranks. `timing` decides how early items and the end are fed.
Batches batches_of_rank(const World& world, std::uint32_t rank, std::uint32_t ranks, std::uint32_t timing,
                        OwnUses* own = nullptr) {
  const std::uint32_t streams = world.shards / ranks;
  const std::uint32_t capacity = world.capacity * streams;
  const auto slots =
      static_cast<std::uint32_t>(capacity + 4 + BatchPlan::waiting_slots(streams, capacity) + timing % 7);
  BatchPlan plan({.capacity = capacity,
                  .slots = slots,
                  .factor = world.factor,
                  .seed = 5,
                  .unique_in_batch = world.unique_in_batch,
                  .even_factor = true,
                  .streams = streams,
                  .first_stream = rank,
                  .stream_step = ranks,
                  .batch_rows = world.batch_rows * streams});
  const std::uint64_t items = (world.items + ranks - 1 - rank) / ranks;
  const bool endless = world.total_uses == kUnknown;
  const std::uint64_t uses = endless ? kUnknown : world.total_uses * streams;
  plan.begin(1, {.items = items, .iteration_uses = uses, .total_uses = uses});

  std::mt19937 random(timing);
  std::vector<std::uint32_t> free(slots);
  std::iota(free.begin(), free.end(), 0U);
  std::uint64_t fed = 0;
  bool ended = false;
  const auto feed = [&] {
    if (fed < items && !free.empty()) {
      plan.feed(free.back());
      free.pop_back();
      ++fed;
    } else if (fed == items && !ended) {
      ended = plan.end_input();
    } else {
      return false;
    }
    return true;
  };

  Batches batches;
  std::vector<Use> batch(world.batch_rows * streams);
  std::uint32_t rows = 0;
  while (batches.size() < world.batches) {
    while (timing > 0 && random() % 3 != 0 && feed()) {
    }
    std::uint32_t drawn = 0;
    const Outcome outcome = plan.draw(std::span(batch).subspan(rows), drawn);
    for (const Use& use : std::span(batch).subspan(rows, drawn)) {
      if (use.last) {
        free.push_back(use.slot);
      }
    }
    rows += drawn;
    if (outcome == Outcome::kEmpty) {
      if (!feed()) {
        ADD_FAILURE() << "the plan waits for an item, and no slot is free";
        return batches;
      }
      continue;
    }
    if (rows == 0) {
      break;
    }
    plan.end_batch();
    auto& taken = batches.emplace_back();
    for (const Use& use : std::span(batch).first(rows)) {
      taken.push_back({use.source_index * ranks + rank, static_cast<std::int32_t>(use.ordinal)});
    }
    rows = 0;
  }
  if (own != nullptr) {
    *own = plan.own_uses();
  }
  if (!endless && batches.size() < world.batches) {
    plan.next_iteration();
    EXPECT_TRUE(plan.finished());
  }
  return batches;
}

Batches global_batches(const World& world, std::uint32_t ranks, std::uint32_t timing) {
  std::vector<Batches> parts;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    parts.push_back(batches_of_rank(world, rank, ranks, timing));
    EXPECT_EQ(parts[rank].size(), parts[0].size());
  }
  Batches whole(parts[0].size());
  for (std::size_t batch = 0; batch < whole.size(); ++batch) {
    for (std::size_t row = 0; row < parts[0][batch].size(); ++row) {
      for (const Batches& part : parts) {
        whole[batch].push_back(part.at(batch).at(row));
      }
    }
  }
  return whole;
}

World random_world(std::uint32_t number) {
  std::mt19937 random(number);
  const auto one_of = [&](auto... values) {
    const std::array options{values...};
    return options[random() % options.size()];
  };
  World world{.shards = 12,
              .capacity = one_of(1U, 2U, 5U, 8U),
              .batch_rows = one_of(1U, 2U, 4U),
              .factor = one_of(1.0, 2.0, 1.5, 3.25),
              .unique_in_batch = random() % 3 == 0,
              .items = 12 + random() % 300,
              .batches = 1000};
  world.batch_rows = world.unique_in_batch ? std::min(world.batch_rows, world.capacity) : world.batch_rows;
  const EchoFactor factor(world.factor);
  const std::uint64_t longest = factor.uses_of_pass((world.items + 11) / 12);
  if (world.unique_in_batch || random() % 2 == 0) {
    world.total_uses = kUnknown;
    world.batches = 2 * longest / world.batch_rows + 5;
  } else {
    world.total_uses = longest + random() % 9;
  }
  return world;
}

TEST(Streams, any_number_of_ranks_and_any_timing_make_the_same_global_batches) {
  for (std::uint32_t number = 0; number < 1000; ++number) {
    const World world = random_world(number);
    const Batches alone = global_batches(world, 1, 0);
    for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 6U, 12U}) {
      ASSERT_EQ(global_batches(world, ranks, number + ranks), alone) << number << ' ' << ranks;
    }
  }
}

// With unique_in_batch an item may come again in a batch before its own uses in later ones.
TEST(Streams, each_item_has_its_uses_in_order_and_only_then_additional_ones) {
  for (std::uint32_t number = 0; number < 1000; ++number) {
    const World world = random_world(number);
    std::map<std::uint64_t, std::vector<std::int32_t>> uses;
    std::uint64_t rows = 0;
    for (const auto& batch : global_batches(world, 3, number)) {
      for (const Row& row : batch) {
        uses[row.item].push_back(row.use);
        ++rows;
      }
    }
    ASSERT_EQ(uses.size(), world.items) << number;
    for (const auto& [item, of_item] : uses) {
      std::int32_t own = 0;
      for (std::int32_t use = 0; const std::int32_t found : of_item) {
        const bool is_next = ~found == use && own >= std::floor(world.factor);
        ASSERT_TRUE(found >= 0 ? found == own : is_next || (world.unique_in_batch && ~found >= own))
            << number << ' ' << item;
        own += found >= 0 ? 1 : 0;
        ++use;
      }
      ASSERT_TRUE(own == std::floor(world.factor) || own == std::ceil(world.factor)) << number << ' ' << item;
    }
    if (world.total_uses != kUnknown) {
      ASSERT_EQ(rows, world.total_uses * world.shards) << number;
    }
  }
}

TEST(Streams, no_item_is_twice_in_a_batch_as_long_as_there_are_enough) {
  for (std::uint32_t number = 0; number < 1000; ++number) {
    World world = random_world(number);
    world.unique_in_batch = true;
    world.batch_rows = std::min(world.batch_rows, world.capacity);
    world.total_uses = kUnknown;
    world.batches = 100;
    const std::uint64_t kept = std::min<std::uint64_t>(world.items / 12, std::max(1U, world.capacity - 1));
    if (kept < world.batch_rows) {
      continue;
    }
    for (const auto& batch : global_batches(world, 2, number)) {
      std::set<std::uint64_t> items;
      for (const Row& row : batch) {
        ASSERT_TRUE(items.insert(row.item).second) << number;
      }
      ASSERT_EQ(batch.size(), world.batch_rows * world.shards);
    }
  }
}

TEST(Streams, the_end_of_the_own_uses_is_known_after_as_many_uses_whatever_the_timing) {
  for (std::uint32_t number = 0; number < 200; ++number) {
    World world = random_world(number);
    world.total_uses = kUnknown;
    OwnUses first;
    const Batches batches = batches_of_rank(world, 0, 1, 0, &first);
    ASSERT_NE(first.count, kUnknown) << number;
    for (std::uint32_t timing = 1; timing < 4; ++timing) {
      OwnUses own;
      batches_of_rank(world, 0, 1, timing, &own);
      ASSERT_EQ(own.count, first.count) << number;
      ASSERT_EQ(own.known_after, first.known_after) << number;
    }
    ASSERT_LE(first.known_after, first.count + world.shards) << number;
    std::uint64_t position = 0;
    std::uint64_t last_own = 0;
    for (const auto& batch : batches) {
      for (const Row& row : batch) {
        ++position;
        last_own = row.use >= 0 ? position : last_own;
      }
    }
    ASSERT_LE(last_own, first.count) << number;
  }
}

TEST(Streams, a_stream_that_begins_with_no_item_makes_additional_uses_of_what_it_is_lent) {
  BatchPlan plan({.capacity = 4, .slots = 8, .factor = 2.0});
  plan.begin(0, {.items = 0, .iteration_uses = 5, .total_uses = 5});
  plan.feed(3);
  plan.end_input();
  std::vector<Use> uses(8);
  std::uint32_t drawn = 0;
  EXPECT_EQ(plan.draw(uses, drawn), Outcome::kEnd);
  ASSERT_EQ(drawn, 5U);
  for (std::uint32_t use = 0; use < drawn; ++use) {
    EXPECT_EQ(uses[use].slot, 3U);
    EXPECT_EQ(uses[use].ordinal, ~use);
    EXPECT_FALSE(uses[use].last);
  }
  EXPECT_EQ(plan.own_uses().count, 0U);
}

TEST(Streams, what_cannot_be_dealt_equally_is_refused) {
  EXPECT_THROW(BatchPlan({.capacity = 2, .slots = 2, .streams = 3}), std::invalid_argument);
  EXPECT_THROW(BatchPlan({.capacity = 4, .slots = 4, .iteration_uses = 3, .streams = 2}), std::invalid_argument);
  EXPECT_THROW(BatchPlan({.capacity = 4, .slots = 4, .streams = 2, .min_uses = 1}), std::invalid_argument);
  EXPECT_THROW(BatchPlan({.capacity = 4, .slots = 4, .unique_in_batch = true, .streams = 2, .batch_rows = 8}),
               std::invalid_argument);
}

TEST(EchoFactor, an_even_choice_is_right_in_total_and_never_far_off) {
  for (const double mean : {1.5, 1.1, 2.75}) {
    for (const std::uint64_t items : {1ULL, 7ULL, 100ULL, 1000ULL}) {
      for (std::uint64_t pass = 0; pass < 20; ++pass) {
        EchoFactor factor(mean, true);
        factor.begin_pass(3, pass, items);
        std::uint64_t uses = 0;
        for (std::uint64_t item = 1; item <= items; ++item) {
          uses += factor.next();
          ASSERT_LT(std::abs(static_cast<double>(uses) - static_cast<double>(item) * mean), 2.0);
        }
        ASSERT_EQ(uses, factor.uses_of_pass(items));
      }
    }
  }
}

}  // namespace
}  // namespace pyecho::test
