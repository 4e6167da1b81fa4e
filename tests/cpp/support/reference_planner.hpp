// What the planner must do, written down as plainly as possible: a list of uses, a random place in
// it.
//
// It draws from the same generator as the planner, so whole sequences of draws can be compared
// (those without unique_in_batch).
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "core/plan/planner.hpp"

namespace pyecho::test {

struct Emission {
  std::uint64_t item;
  std::uint32_t use;
  bool operator==(const Emission&) const = default;
};

// As "item/use" in the messages of failed tests.
inline void PrintTo(const Emission& emission, std::ostream* out) { *out << emission.item << '/' << emission.use; }

using Batches = std::vector<std::vector<Emission>>;

class ReferencePlanner {
 public:
  ReferencePlanner(const PlannerConfig& config, std::uint64_t items)
      : config_(config),
        factor_(config.factor, config.seed, config.epoch),
        random_(stream_key(config.seed, config.epoch, Stream::kDraw)),
        items_(items),
        left_(items),
        drawn_(items) {}

  // All batches of the epoch; empty batches end it.
  Batches run(std::uint32_t rows) {
    Batches batches;
    for (;;) {
      std::vector<Emission> batch;
      while (batch.size() < rows) {
        const std::optional<Emission> emission = draw();
        if (!emission) {
          break;
        }
        batch.push_back(*emission);
      }
      if (batch.empty()) {
        return batches;
      }
      batches.push_back(std::move(batch));
    }
  }

 private:
  void admit() {
    const std::uint32_t uses = factor_.uses_of(next_);
    left_[next_] = uses;
    uses_.insert(uses_.end(), uses, next_++);
    ++resident_;
  }

  std::optional<Emission> draw() {
    while (resident_ < config_.capacity && next_ < items_) {
      admit();
    }
    if (uses_.empty()) {
      return std::nullopt;
    }
    // Without shuffling there is one item, so no choice and no random number.
    const std::size_t place = config_.capacity == 1 ? 0 : random_.below(static_cast<std::uint32_t>(uses_.size()));
    const std::uint64_t item = uses_[place];
    uses_[place] = uses_.back();
    uses_.pop_back();
    if (--left_[item] == 0) {
      --resident_;
    }
    return Emission{item, drawn_[item]++};
  }

  PlannerConfig config_;
  EchoFactor factor_;
  Xoshiro256 random_;
  std::uint64_t items_;
  std::uint64_t next_ = 0;
  std::uint32_t resident_ = 0;
  std::vector<std::uint32_t> left_;   // uses left of each item of the epoch
  std::vector<std::uint32_t> drawn_;  // uses made of it
  std::vector<std::uint64_t> uses_;   // one entry per use that is left in the pool
};

}  // namespace pyecho::test
