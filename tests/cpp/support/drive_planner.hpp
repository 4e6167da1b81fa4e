// Runs a planner over an epoch the way its executors do, and checks its bookkeeping on the way.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/planner.hpp"
#include "reference_planner.hpp"

namespace pyecho::test {

// All batches of an epoch of `items` items, of which at most `stretch` uses are drawn at once. Slots are reused after each
// stretch, last out first in, so that a batch may see one slot number twice.
inline Batches drive_planner(const PlannerConfig& config, std::uint64_t items, std::uint32_t rows,
                             std::uint32_t stretch) {
  Planner planner(config);
  const EchoFactor factor(config.factor, config.seed, config.epoch);
  std::vector<std::uint32_t> free_slots;
  for (std::uint32_t slot = config.slots; slot > 0; --slot) {
    free_slots.push_back(slot - 1);
  }
  std::vector<std::uint64_t> item_in(config.slots);
  Batches batches;
  const auto admit = [&] {
    while (planner.has_room()) {
      if (planner.admitted() == items) {
        planner.end_of_source();
        continue;
      }
      const std::uint32_t slot = free_slots.back();
      free_slots.pop_back();
      item_in[slot] = planner.admitted();
      planner.admit(slot);
    }
  };
  std::vector<Use> uses(stretch);
  while (!planner.exhausted()) {
    std::vector<Emission> batch;
    planner.begin_batch();
    while (batch.size() < rows) {
      admit();
      const std::size_t wanted = std::min<std::size_t>(stretch, rows - batch.size());
      const std::size_t drawn =
          stretch == 1 ? (planner.draw(uses.front()) ? 1 : 0) : planner.draw(std::span(uses).first(wanted));
      if (drawn == 0) {
        break;
      }
      for (const Use& use : std::span(uses).first(drawn)) {
        EXPECT_EQ(use.source_index, item_in[use.slot]);
        EXPECT_EQ(use.last, use.ordinal + 1 == factor.uses_of(use.source_index));
        if (use.last) {
          free_slots.push_back(use.slot);
        }
        batch.push_back({use.source_index, use.ordinal});
      }
      EXPECT_EQ(planner.resident() + free_slots.size(), config.slots);
      EXPECT_TRUE(drawn == wanted || planner.has_room() || !planner.draw(uses.front()));  // it stopped for a reason
    }
    if (!batch.empty()) {
      batches.push_back(batch);
    }
  }
  EXPECT_EQ(planner.admitted(), items);
  EXPECT_EQ(planner.resident(), 0U);
  return batches;
}

// The batches of an epoch, the same however many uses are drawn at once.
inline Batches drive_planner(const PlannerConfig& config, std::uint64_t items, std::uint32_t rows) {
  const Batches batches = drive_planner(config, items, rows, 1);
  EXPECT_EQ(drive_planner(config, items, rows, 5), batches);
  EXPECT_EQ(drive_planner(config, items, rows, rows), batches);
  return batches;
}

// Every use of every item once, each item's uses in order.
inline void expect_exact(const Batches& batches, const PlannerConfig& config, std::uint64_t items) {
  const EchoFactor factor(config.factor, config.seed, config.epoch);
  std::vector<std::uint32_t> uses(items);
  std::uint64_t total = 0;
  for (const auto& batch : batches) {
    for (const Emission& emission : batch) {
      ASSERT_LT(emission.item, items);
      ASSERT_EQ(emission.use, uses[emission.item]++);
      ++total;
    }
  }
  for (std::uint64_t item = 0; item < items; ++item) {
    ASSERT_EQ(uses[item], factor.uses_of(item)) << item;
  }
  EXPECT_EQ(total, factor.uses_of_first(items));
}

}  // namespace pyecho::test
