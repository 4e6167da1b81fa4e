// Streams of a run: a model of what Plan promises to several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/plan/plan.hpp"

namespace pyecho::test {
namespace {

struct Row {
  std::uint64_t item;  // of the whole source
  std::uint32_t use;
  bool operator==(const Row&) const = default;
};
using Batches = std::vector<std::vector<Row>>;

struct World {
  std::uint32_t shards = 1;
  std::uint32_t capacity = 8;    // of each stream
  std::uint32_t batch_rows = 4;  // of each stream
  double factor = 2.0;
  std::uint64_t items = 0;   // of a pass
  std::uint64_t uses = 0;    // of a pass, of each stream
  std::uint64_t passes = 1;  // that flow into each other
};

// Draws the batches of one of `ranks` ranks. `timing` decides how early items and ends of passes are fed. There are
// only as many slots as Plan promises to come along with.
Batches batches_of_rank(const World& world, std::uint32_t rank, std::uint32_t ranks, std::uint32_t timing) {
  const std::uint32_t streams = world.shards / ranks;
  const std::uint32_t capacity = world.capacity * streams;
  const auto slots = static_cast<std::uint32_t>(capacity + Plan::waiting_slots(streams, capacity));
  Plan plan({.capacity = capacity,
             .slots = slots,
             .factor = world.factor,
             .seed = 5,
             .even_factor = true,
             .streams = streams,
             .first_stream = rank,
             .stream_step = ranks});
  const std::uint64_t items = (world.items + ranks - 1 - rank) / ranks;
  plan.begin(1, {.items = items, .uses = world.uses * streams});

  std::mt19937 random(timing);
  std::vector<std::uint32_t> free(slots);
  std::iota(free.begin(), free.end(), 0U);
  std::uint64_t passes = 0;
  const auto feed = [&] {
    if (plan.ended() || (plan.open_items() < items && free.empty())) {
      return false;
    }
    if (plan.open_items() < items) {
      plan.feed(free.back());
      free.pop_back();
    } else if (++passes == world.passes) {
      EXPECT_TRUE(plan.end_input());
    } else {
      plan.end_pass();
    }
    return true;
  };

  Batches batches;
  std::vector<Use> batch(world.batch_rows * streams);
  std::uint32_t rows = 0;
  std::uint64_t of_iteration = 0;
  for (std::uint64_t iteration = 0; !plan.finished();) {
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
    of_iteration += drawn;
    if (outcome == Outcome::kEmpty) {
      if (!feed()) {
        ADD_FAILURE() << "the plan waits for an item, and no slot is free";
        return batches;
      }
      continue;
    }
    if (rows == 0) {
      EXPECT_EQ(std::exchange(of_iteration, 0), world.uses * streams) << iteration;
      ++iteration;
      plan.next_iteration();
      continue;
    }
    plan.end_batch();
    auto& taken = batches.emplace_back();
    for (const Use& use : std::span(batch).first(rows)) {
      taken.push_back({use.source_index * ranks + rank, use.ordinal});
    }
    rows = 0;
  }
  EXPECT_EQ(free.size(), slots);
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

World random_world(std::uint32_t number, std::uint32_t shards) {
  std::mt19937 random(number);
  const auto one_of = [&](auto... values) {
    const std::array options{values...};
    return options[random() % options.size()];
  };
  World world{.shards = shards,
              .capacity = one_of(1U, 2U, 5U, 8U, 40U, 200U),
              .batch_rows = one_of(1U, 2U, 4U),
              .factor = one_of(1.0, 2.0, 1.5, 1.03, 3.25, 7.9),
              .items = shards + random() % one_of(3U, 40U, 400U)};
  if (random() % 2 == 0) {  // passes that flow have equally many items in each stream
    world.passes = 1 + random() % 7;
    world.items = world.items / shards * shards;
  }
  const std::uint64_t longest = (world.items + shards - 1) / shards;
  world.uses = EchoFactor(world.factor).uses_of_pass(longest);
  world.uses += one_of(std::uint64_t{0}, std::uint64_t{1}, random() % 9, longest * (random() % 9));
  return world;
}

TEST(Streams, any_number_of_ranks_and_any_timing_make_the_same_global_batches) {
  for (std::uint32_t number = 0; number < 600; ++number) {
    const World world = random_world(number, 12);
    const Batches alone = global_batches(world, 1, 0);
    for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 6U, 12U}) {
      ASSERT_EQ(global_batches(world, ranks, number + ranks), alone) << number << ' ' << ranks;
    }
  }
}

TEST(Streams, each_item_has_an_equal_part_of_the_uses_of_its_stream_or_one_more) {
  for (std::uint32_t number = 0; number < 600; ++number) {
    const World world = random_world(number, 12);
    std::map<std::uint64_t, std::vector<std::uint32_t>> uses;  // by item, of all passes
    for (const auto& batch : global_batches(world, 3, number)) {
      for (const Row& row : batch) {
        uses[row.item].push_back(row.use);
      }
    }
    ASSERT_EQ(uses.size(), world.items) << number;
    for (const auto& [item, of_item] : uses) {
      const std::uint64_t items = (world.items + 11 - item % 12) / 12;  // of its stream
      const auto firsts = static_cast<std::uint64_t>(std::ranges::count(of_item, 0U));
      ASSERT_EQ(firsts, world.passes) << number;
      ASSERT_GE(of_item.size(), world.passes * (world.uses / items)) << number << ' ' << item;
      ASSERT_LE(of_item.size(), world.passes * ((world.uses + items - 1) / items)) << number << ' ' << item;
      for (std::size_t at = 1; at < of_item.size() && world.passes == 1; ++at) {
        ASSERT_EQ(of_item[at], at);
      }
    }
  }
}

TEST(Streams, items_that_wait_for_their_turn_always_find_slots) {
  for (std::uint32_t number = 0; number < 20'000; ++number) {
    const World world = random_world(number, 2 + number % 7);
    batches_of_rank(world, 0, 1, number % 3);
    ASSERT_FALSE(HasFailure()) << number;
  }
}

TEST(Streams, a_plan_whose_uses_are_those_of_its_factor_draws_as_if_they_were_not_told) {
  for (const double mean : {2.0, 1.5, 2.7}) {
    PlanConfig config{.capacity = 8, .slots = 40, .factor = mean, .seed = 3};
    std::array<std::vector<std::uint64_t>, 2> drawn;
    for (std::size_t told = 0; told < 2; ++told) {
      Plan plan(config);
      plan.begin(2, {.items = 30, .uses = told == 1 ? EchoFactor(mean).uses_of_pass(30) : kUnknown});
      for (std::uint32_t slot = 0; slot < 30; ++slot) {
        plan.feed(slot);
      }
      plan.end_input();
      std::vector<Use> uses(100);
      std::uint32_t count = 0;
      ASSERT_EQ(plan.draw(uses, count), Outcome::kEnd);
      for (const Use& use : std::span(uses).first(count)) {
        drawn.at(told).push_back(use.source_index);
      }
    }
    EXPECT_EQ(drawn[0], drawn[1]);
  }
}

TEST(Streams, what_cannot_be_dealt_equally_is_refused) {
  EXPECT_THROW(Plan({.capacity = 2, .slots = 2, .streams = 3}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .iteration_uses = 3, .streams = 2}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .streams = 2, .min_uses = 1}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .unique_in_batch = true, .streams = 2, .batch_rows = 8}),
               std::invalid_argument);
  Plan plan({.capacity = 1000, .slots = 1000, .streams = 2});
  constexpr std::uint64_t kTooMany = std::uint64_t{1} << 33;
  for (const Extent& extent :
       {Extent{.items = 4, .uses = 9}, Extent{.items = 1, .uses = 8}, Extent{.items = 0, .uses = 0}, Extent{.uses = 8},
        Extent{.items = 6, .uses = 4}, Extent{.items = 2, .uses = kTooMany}, Extent{.items = 8, .uses = kTooMany}}) {
    EXPECT_THROW(plan.begin(0, extent), std::invalid_argument) << extent.items << ' ' << extent.uses;
  }
  plan.begin(0, {.items = 2, .uses = 1'000'000});  // a pool larger than a pass needs room for a pass only
  EXPECT_THROW(Plan({.min_uses = 1}).begin(0, {.items = 2, .uses = 8}), std::invalid_argument);
}

TEST(EchoFactor, an_even_choice_is_right_in_total_and_never_far_off) {
  for (const double mean : {1.5, 1.1, 2.75}) {
    for (const std::uint64_t items : {1ULL, 7ULL, 100ULL, 1000ULL}) {
      for (std::uint64_t pass = 0; pass < 20; ++pass) {
        for (const std::uint64_t more : {0ULL, 1ULL, 6ULL, 999ULL}) {
          EchoFactor factor(mean, true);
          const std::uint64_t total = factor.uses_of_pass(items) + more;
          factor.begin_pass(3, pass, items, total);
          const double of_pass = more == 0 ? mean : static_cast<double>(total) / static_cast<double>(items);
          std::uint64_t uses = 0;
          for (std::uint64_t item = 1; item <= items; ++item) {
            uses += factor.next();
            ASSERT_LT(std::abs(static_cast<double>(uses) - static_cast<double>(item) * of_pass), 2.0);
          }
          ASSERT_EQ(uses, total);
        }
      }
    }
  }
}

TEST(EchoFactor, a_pass_has_the_uses_it_is_given_and_the_next_one_its_own) {
  for (std::uint64_t items = 1; items < 60; ++items) {
    EchoFactor factor(1.5);
    for (const std::uint64_t uses : {items, items + items / 2, 7 * items - 1, 1000 * items + 1}) {
      factor.begin_pass(1, 2, items, uses);
      std::uint64_t total = 0;
      for (std::uint64_t item = 0; item < items; ++item) {
        const std::uint32_t of_item = factor.next();
        ASSERT_TRUE(of_item == uses / items || of_item == (uses + items - 1) / items);
        total += of_item;
      }
      ASSERT_EQ(total, uses);
    }
    factor.begin_pass(1, 2, items);
    ASSERT_EQ(factor.uses_of_pass(10), 15U);
  }
}

}  // namespace
}  // namespace pyecho::test
