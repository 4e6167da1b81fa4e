// The decisions of an adaptive factor: numbers that one thread adds while others look at those there are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace pyecho {

// Decisions of an adaptive factor: for each batch the number of events (items, ends of passes) taken before it. Never
// changes; copies share memory, also with the GrowingDecisions.
class Decisions {
 public:
  Decisions() = default;
  explicit Decisions(std::shared_ptr<const std::vector<std::uint32_t>> memory)
      : values_(*memory), memory_(std::move(memory)) {}
  explicit Decisions(std::vector<std::uint32_t> values)
      : Decisions(std::make_shared<const std::vector<std::uint32_t>>(std::move(values))) {}

  [[nodiscard]] std::span<const std::uint32_t> values() const noexcept { return values_; }
  friend bool operator==(const Decisions& a, const Decisions& b) { return std::ranges::equal(a.values_, b.values_); }

 private:
  std::span<const std::uint32_t> values_;  // those of `memory_` that there were
  std::shared_ptr<const std::vector<std::uint32_t>> memory_;
};

// By the first epoch of passes that flow into each other.
using DecisionLog = std::map<std::uint64_t, Decisions>;

// Of a plan that has diverged from the decisions to take again.
inline constexpr const char* kOtherLog =
    "the log is not that of this run: the pool cannot take as many items before a batch as the log says; replay needs "
    "the "
    "source, the options, the seed and the epochs of the run that made the log";

// Decisions that are being taken. One thread at a time; any thread may read the Decisions of so_far() meanwhile,
// because add() writes behind them, or, if there is no room, into new memory.
class GrowingDecisions {
 public:
  void add(std::uint32_t decision) {
    if (memory_->size() == memory_->capacity()) {
      auto larger = std::make_shared<std::vector<std::uint32_t>>();
      larger->reserve(std::max<std::size_t>(16, 2 * memory_->size()));
      larger->assign(memory_->begin(), memory_->end());
      memory_ = std::move(larger);
    }
    memory_->push_back(decision);
  }
  [[nodiscard]] std::size_t size() const noexcept { return memory_->size(); }
  [[nodiscard]] Decisions so_far() const { return Decisions(memory_); }

 private:
  std::shared_ptr<std::vector<std::uint32_t>> memory_ = std::make_shared<std::vector<std::uint32_t>>();
};

}  // namespace pyecho
