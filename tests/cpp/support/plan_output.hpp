// Runs a Plan alone, in one thread, over several passes. Its output is required of every stage and driver.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <span>
#include <vector>

#include "core/plan/plan.hpp"

namespace pyecho::test {

// One use of an item. Items are numbered over all passes.
struct Emission {
  std::uint64_t item;
  std::uint32_t use;
  bool operator==(const Emission&) const = default;
};

// Prints "item/use" in the messages of failed tests.
inline void PrintTo(const Emission& emission, std::ostream* out) { *out << emission.item << '/' << emission.use; }

using Batches = std::vector<std::vector<Emission>>;
using Iterations = std::vector<Batches>;
using Passes = std::vector<std::uint64_t>;  // items of each

// Feeds a plan the slots of items and the ends of passes, in source order.
class PlanSource {
 public:
  PlanSource(Plan& plan, std::uint32_t slots, const Passes& passes)
      : plan_(plan), passes_(passes), free_(slots), item_in_(slots), pass_begin_of_(slots) {
    std::iota(free_.rbegin(), free_.rend(), 0U);
  }
  // Feeds the next item, or the end of a pass or the input. Returns false if the input has ended or no slot is free.
  bool feed() {
    if (pass_ == passes_.size() || (in_pass_ < passes_[pass_] && free_.empty())) {
      return false;
    }
    if (in_pass_ < passes_[pass_]) {
      const std::uint32_t slot = free_.back();
      free_.pop_back();
      item_in_[slot] = items_++;
      pass_begin_of_[slot] = item_in_[slot] - in_pass_++;
      plan_.feed(slot);
    } else if (++pass_ < passes_.size()) {
      plan_.end_pass();
      in_pass_ = 0;
    } else {
      EXPECT_TRUE(plan_.end_input());
    }
    return true;
  }
  // Returns the item and number of the use. The last use frees the slot.
  Emission take(const Use& use) {
    EXPECT_EQ(use.source_index, item_in_[use.slot] - pass_begin_of_[use.slot]);
    if (use.last) {
      free_.push_back(use.slot);  // last out, first in: a batch may see one slot number twice
    }
    return {item_in_[use.slot], use.ordinal};
  }
  [[nodiscard]] std::uint64_t items() const { return items_; }
  [[nodiscard]] bool ended() const { return pass_ == passes_.size(); }

 private:
  Plan& plan_;
  const Passes passes_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint64_t> item_in_;
  std::vector<std::uint64_t> pass_begin_of_;
  std::size_t pass_ = 0;
  std::uint64_t in_pass_ = 0;
  std::uint64_t items_ = 0;
};

// Returns the iterations of a run in batches of `rows`.
inline Iterations run_plan(Plan& plan, const PlanConfig& config, const Passes& passes, std::uint32_t rows) {
  PlanSource source(plan, config.slots, passes);
  Iterations iterations(1);
  std::vector<Emission> batch;
  std::vector<Use> uses(rows);
  std::uint64_t bound = 0;  // items that the open batch still needs, at least
  while (!plan.finished()) {
    const auto missing = static_cast<std::uint32_t>(rows - batch.size());
    std::uint32_t drawn = 0;
    const Outcome outcome = plan.draw(std::span(uses).first(missing), drawn);
    for (const Use& use : std::span(uses).first(drawn)) {
      batch.push_back(source.take(use));
    }
    if (outcome == Outcome::kEmpty) {
      bound = std::max(bound, source.items() + plan.min_items(rows - batch.size()));
      EXPECT_TRUE(source.feed()) << "a plan with " << plan.resident() << " items wants more";
    } else if (batch.size() == rows || (outcome == Outcome::kEnd && !batch.empty())) {
      // A pool that drains at a joint needs fewer.
      EXPECT_TRUE(batch.size() < rows || source.ended() || bound <= source.items() || config.segment_uses > 0);
      iterations.back().push_back(std::move(batch));
      batch.clear();
      plan.end_batch();
      bound = 0;
    } else if (outcome == Outcome::kEnd) {
      plan.next_iteration();
      iterations.emplace_back();
    }
  }
  EXPECT_EQ(plan.resident(), 0U);
  EXPECT_TRUE(source.ended());
  iterations.pop_back();
  return iterations;
}

// Returns the number of uses by the contract: N items with factor e have floor(N * e + 0.5) uses.
inline std::uint64_t uses_of(double factor, std::uint64_t items) {
  return static_cast<std::uint64_t>(std::floor(static_cast<double>(items) * factor + 0.5));
}

}  // namespace pyecho::test
