// How far a joint plan takes its input: knots (batch, items), and between two of them equally many items for each batch.
// The ranks of a run add the same knots, so their plans take the same decisions, however early their items arrive.
//
// One thread adds knots and another one reads them, under a mutex, which each holds for some nanoseconds a batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace pyecho {

class Schedule {
 public:
  // A plan may decide on the batches before number `batch`, and has taken so many items for them.
  struct Knot {
    std::uint64_t batch;
    std::uint64_t items;
    friend bool operator==(const Knot&, const Knot&) = default;
  };

  // Drops all knots, and starts with these, ascending in both numbers.
  void restart(std::vector<Knot> knots) {
    const std::scoped_lock lock(mutex_);
    knots_ = std::move(knots);
  }
  // Adds a knot behind the others. One that is not behind them is ignored.
  void extend(Knot knot) {
    const std::scoped_lock lock(mutex_);
    if (knots_.empty() || knot.batch > knots_.back().batch) {
      knot.items = knots_.empty() ? knot.items : std::max(knot.items, knots_.back().items);
      knots_.push_back(knot);
    }
  }
  // Returns the items to take before the draws of this batch, those of earlier batches included. None: a knot is missing.
  // Batches are asked for in ascending order; knots that no later one needs are dropped.
  [[nodiscard]] std::optional<std::uint64_t> items_before(std::uint64_t batch) {
    const std::scoped_lock lock(mutex_);
    const auto next = std::ranges::upper_bound(knots_, batch, {}, &Knot::batch);
    if (next == knots_.end() || next == knots_.begin()) {
      return std::nullopt;
    }
    knots_.erase(knots_.begin(), std::prev(next));
    const Knot from = knots_[0];
    const Knot to = knots_[1];
    const std::uint64_t batches = to.batch - from.batch;
    const std::uint64_t items = to.items - from.items;
    // Without overflow: items / batches and what is left over are spread apart.
    const std::uint64_t passed = batch - from.batch + 1;
    return from.items + items / batches * passed + items % batches * passed / batches;
  }
  [[nodiscard]] std::vector<Knot> knots() const {
    const std::scoped_lock lock(mutex_);
    return knots_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Knot> knots_;  // guarded by mutex_
};

}  // namespace pyecho
