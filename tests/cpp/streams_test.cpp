// Streams of a run: a model of what Plan promises to several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
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
  std::uint32_t batch_size = 4;  // of each stream
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
  std::vector<Use> batch(world.batch_size * streams);
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
              .batch_size = one_of(1U, 2U, 4U),
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

TEST(Streams, items_that_wait_for_their_turn_always_find_slots) {
  for (std::uint32_t number = 0; number < 20'000; ++number) {
    const World world = random_world(number, 2 + number % 7);
    batches_of_rank(world, 0, 1, number % 3);
    ASSERT_FALSE(HasFailure()) << number;
  }
}

TEST(Streams, what_cannot_be_dealt_equally_is_refused) {
  EXPECT_THROW(Plan({.capacity = 2, .slots = 2, .streams = 3}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .iteration_uses = 3, .streams = 2}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .streams = 2, .min_uses = 1}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .unique_in_batch = true, .streams = 2, .batch_size = 8}),
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

}  // namespace
}  // namespace pyecho::test
