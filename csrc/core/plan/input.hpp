// The input of a stream: items and ends of passes in source order, from where they are fed to where the stream takes
// them. It numbers the items of each pass, and says how many uses each of them gets (EchoFactor). Pure arithmetic.
//
//     input.feed(slot);  or  input.end_pass();  or  input.end();
//     while (input.at_pass_end()) { input.close_pass(); }
//     if (input.at_joint() && no use is left) { input.cross(); }
//     if (input.has_item() && !input.at_joint()) { item = input.take(); }
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

// The end of a segment (Segments): no item is taken beyond it before the uses of earlier ones are drawn.
struct Joint {
  std::uint64_t fed;    // items before it
  std::uint64_t pass;   // number of the open pass
  std::uint64_t parts;  // joints in that pass, this one included; 0: it is at its beginning
};

class Input {
 public:
  // Throws std::invalid_argument if the factor is wrong, std::bad_alloc.
  explicit Input(const PlanConfig& config)
      : seed_(config.seed), factor_(config.factor, config.even_factor, config.part), slots_(config.slots) {}

  // Begins with a pass, after `items` items of it, of which `more` got one more use.
  void begin(std::uint64_t pass, const Extent& extent, std::uint64_t items, std::uint64_t more) noexcept {
    fed_ = taken_ = 0;
    pass_begin_ = 0 - items;
    ends_.clear();
    joints_.clear();
    joint_ = kUnknown;
    ended_ = false;
    extent_ = extent;
    pass_ = pass;
    factor_.begin_pass(seed_, pass_, extent_.items, extent_.uses);
    factor_.skip(items, more);
  }

  void feed(std::uint32_t slot) noexcept {
    assert(fed_ - taken_ < slots_.size());
    slots_[fed_++ % slots_.size()] = slot;
  }
  void end_pass() { ends_.push_back(fed_); }
  // A segment ends after the items fed so far, in this pass.
  void end_segment(std::uint64_t pass, std::uint64_t parts) {
    joints_.push_back({.fed = fed_, .pass = pass, .parts = parts});
    joint_ = joints_.front().fed;
  }
  void end() {
    end_pass();
    ended_ = true;
  }

  [[nodiscard]] bool has_item() const noexcept { return taken_ < fed_; }
  // True if all items of the open pass are taken, and it ends there.
  [[nodiscard]] bool at_pass_end() const noexcept { return !ends_.empty() && ends_.front() == taken_; }
  // True if the next item to take belongs to the next segment.
  [[nodiscard]] bool at_joint() const noexcept { return taken_ == joint_; }
  // Same, and the end of each pass before the joint is closed.
  [[nodiscard]] bool may_cross() const noexcept { return at_joint() && joints_.front().pass <= pass_; }
  // Returns the next joint, which was fed.
  [[nodiscard]] const Joint& joint() const noexcept { return joints_.front(); }
  // Enters the next segment.
  Joint cross() noexcept {
    const Joint joint = joints_.front();
    joints_.pop_front();
    joint_ = joints_.empty() ? kUnknown : joints_.front().fed;
    return joint;
  }
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
  // Returns how many items of the open pass got one more use so far.
  [[nodiscard]] std::uint64_t more() const noexcept { return factor_.given(); }
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
  Fifo<std::uint64_t> ends_;        // value of fed_ at the end of each pass that is not closed
  Fifo<Joint> joints_;              // that are not crossed
  std::uint64_t joint_ = kUnknown;  // value of taken_ at the first of them
  bool ended_ = false;
  std::uint64_t pass_ = 0;        // number of the open pass
  std::uint64_t pass_begin_ = 0;  // items taken before it
};

}  // namespace pyecho
