// The input of a stream: items and ends of passes in source order, from where they are fed to where the stream takes
// them. It numbers the items of each pass, and says how many uses each of them gets (EchoFactor). Pure arithmetic.
//
//     input.feed(slot);  or  input.end_pass();  or  input.end();
//     while (input.at_pass_end()) { input.close_pass(); }
//     if (input.has_item()) { item = input.take(); }
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "core/plan/echo_factor.hpp"
#include "core/plan/fifo.hpp"
#include "core/plan/plan_config.hpp"

namespace pyecho {

struct Item {
  std::uint32_t slot;
  std::uint64_t source_index;  // in its pass
  std::uint32_t uses;          // with an adaptive factor: at most
};

class Input {
 public:
  // Throws std::invalid_argument if the factor is wrong, std::bad_alloc.
  explicit Input(const PlanConfig& config)
      : seed_(config.seed), factor_(config.factor, config.even_factor), slots_(config.slots) {}

  void begin(std::uint64_t epoch, const Extent& extent) noexcept {
    fed_ = taken_ = pass_begin_ = 0;
    ends_.clear();
    ended_ = false;
    extent_ = extent;
    pass_ = epoch;
    factor_.begin_pass(seed_, pass_, extent_.items, extent_.uses);
  }

  void feed(std::uint32_t slot) noexcept {
    assert(fed_ - taken_ < slots_.size());
    slots_[fed_++ % slots_.size()] = slot;
  }
  void end_pass() { ends_.push_back(fed_); }
  void end() {
    end_pass();
    ended_ = true;
  }

  [[nodiscard]] bool has_item() const noexcept { return taken_ < fed_; }
  // True if all items of the open pass are taken, and it ends there.
  [[nodiscard]] bool at_pass_end() const noexcept { return !ends_.empty() && ends_.front() == taken_; }
  Item take() noexcept {
    const std::uint64_t index = taken_++;
    return {.slot = slots_[index % slots_.size()], .source_index = index - pass_begin_, .uses = factor_.next()};
  }
  void close_pass() noexcept {
    ends_.pop_front();
    pass_begin_ = taken_;
    factor_.begin_pass(seed_, ++pass_, extent_.items, extent_.uses);
  }

  // True once no item follows those fed.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  // True once no item is left to take, or to come.
  [[nodiscard]] bool drained() const noexcept { return ended_ && taken_ == fed_; }
  // Same, and no end of a pass either.
  [[nodiscard]] bool over() const noexcept { return ended_ && ends_.empty(); }
  // Returns the numbers of items fed and taken so far.
  [[nodiscard]] std::uint64_t fed() const noexcept { return fed_; }
  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
  // Returns the most uses of an item in the open pass.
  [[nodiscard]] std::uint32_t most_uses() const noexcept { return factor_.max_uses(); }

  // Calls visit(slot) for every item that was fed and is not taken.
  template <class Visit>
  void each_slot(const Visit& visit) const {
    for (std::uint64_t item = taken_; item < fed_; ++item) {
      visit(slots_[item % slots_.size()]);
    }
  }

 private:
  const std::uint64_t seed_;
  EchoFactor factor_;
  Extent extent_;
  std::vector<std::uint32_t> slots_;  // a ring of the items fed and not taken
  std::uint64_t fed_ = 0;
  std::uint64_t taken_ = 0;
  Fifo<std::uint64_t> ends_;  // value of fed_ at the end of each pass that is not closed
  bool ended_ = false;
  std::uint64_t pass_ = 0;        // number of the open pass
  std::uint64_t pass_begin_ = 0;  // items taken before it
};

}  // namespace pyecho
