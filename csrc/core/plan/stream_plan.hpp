// Decides which item of a stream is drawn next. Pure arithmetic: no threads, no clock, no payload.
//
// The plan works on slot numbers. It is fed the slots of items in source order, admits items while its pool has room,
// and draws uniformly among all remaining uses of the items in the pool. An item leaves the pool with its last use, and
// the next one is admitted before the next draw. So the draws depend only on (factor, capacity, seed, epoch) and the
// number of items.
//
// The remaining uses are an array of slot numbers, one entry for each use. A draw takes a random entry and moves the last
// one into its place, so its cost is constant for any capacity.
//
// Iterations. One iteration emits as many uses as the items of one pass over the source have together, or a fixed number
// (PlanConfig::iteration_uses). Passes flow into each other: end_pass() marks the items fed so far as a complete pass,
// and the items of the next pass may follow while the pool still holds older ones. The pool drains only after
// end_input(). Iteration n draws from the random numbers of (seed, epoch + n).
//
// An adaptive factor takes the items that have arrived at the beginning of each batch, and repeats older ones as far as
// they do not suffice (AdaptivePool). How many events of the input it took is written to a log; with PlanConfig::replay it
// takes as many, so the draws depend on the log instead of the time. An iteration ends at the first batch boundary at
// which the end of its pass was taken and as many uses were drawn as the items so far have at least; it has a batch, if there
// are enough. At the end of the input only the least uses are drawn.
//
// A pass with a number of uses of its own (Extent) may have a factor far above the configured one, so begin() makes room for
// its uses in the pool; end_pass() makes more where the pool holds items of several passes.
//
// Not thread-safe: one thread at a time, except for finished(), resident(), decisions(), log() and diverged().
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/adaptive_pool.hpp"
#include "core/plan/decision_log.hpp"
#include "core/plan/echo_factor.hpp"
#include "core/plan/fifo.hpp"
#include "core/plan/plan_config.hpp"
#include "core/plan/random.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

class StreamPlan {
 public:
  // Throws std::invalid_argument if the configuration is invalid, std::bad_alloc.
  explicit StreamPlan(const PlanConfig& config);
  // Returns the bytes that a plan of this configuration allocates. Throws std::invalid_argument.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config);

  // The members below are those of BatchPlan, for one stream. begin() throws std::invalid_argument also if there is no such
  // pass, or its uses in the pool cannot be counted.
  void begin(std::uint64_t epoch, const Extent& extent);
  void replay(std::vector<std::uint32_t> decisions);

  // -- Input, in source order --

  void feed(std::uint32_t slot) noexcept {
    assert(fed_ - admitted_ < inbox_.size());
    inbox_[fed_++ % inbox_.size()] = slot;
  }
  void end_pass() {
    pass_ends_.push_back(fed_);
    make_room(fed_);
  }
  void end_input() {
    pass_ends_.push_back(fed_);
    ended_ = true;
  }

  // -- Output --

  Outcome draw(std::span<Use> rows, std::uint32_t& drawn) noexcept;
  Outcome ready() noexcept;
  void end_batch() noexcept;
  void next_iteration() noexcept;

  template <class Visit>
  void take_left(const Visit& visit) {
    if (adaptive_ && !adaptive_->left().empty()) {
      visit(std::span<const std::uint32_t>(adaptive_->left()));
      adaptive_->left().clear();
    }
  }
  [[nodiscard]] Decisions decisions() const;
  [[nodiscard]] DecisionLog log() const;
  [[nodiscard]] bool diverged() const noexcept { return diverged_.load_relaxed(); }

  [[nodiscard]] bool finished() const noexcept { return finished_.load_relaxed(); }
  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept;
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_.load_relaxed(); }

  // Calls visit(slot) for every item that was fed and is not drawn to its last use.
  template <class Visit>
  void each_slot(const Visit& visit) const {
    for (std::uint32_t slot = 0; slot < config_.slots; ++slot) {
      if (adaptive_ ? adaptive_->holds(slot) : pool_[slot].uses_left > 0) {
        visit(slot);
      }
    }
    for (std::uint64_t item = admitted_; item < fed_; ++item) {
      visit(inbox_[item % inbox_.size()]);
    }
  }
  [[nodiscard]] bool ended() const noexcept { return ended_; }

 private:
  struct Item {
    std::uint64_t source_index;
    std::uint32_t uses_left;
    std::uint32_t uses_drawn;
  };

  [[nodiscard]] std::uint64_t remaining_uses() const noexcept { return admitted_uses_ - drawn_; }  // in the pool
  [[nodiscard]] bool full() const noexcept { return resident() == config_.capacity; }
  [[nodiscard]] bool exhausted() const noexcept {
    return adaptive_ ? drained_ && adaptive_->resident() == 0 : drains() && remaining_uses() == 0;
  }
  [[nodiscard]] bool drains() const noexcept { return ended_ && admitted_ == fed_; }
  [[nodiscard]] std::uint64_t uses_left_in_iteration() const noexcept {
    return iteration_ends_.empty() ? kUnknown : iteration_ends_.front() - drawn_;
  }
  void begin_decisions(std::uint64_t epoch);
  [[nodiscard]] bool decide() noexcept;
  [[nodiscard]] bool take_what_arrived() noexcept;
  [[nodiscard]] bool take_event();
  void end_iterations();
  [[nodiscard]] std::uint32_t draw_adaptive(std::span<Use> rows);
  void check(const Extent& extent) const;
  void make_room(std::uint64_t earlier_items);
  void begin_iteration() noexcept;
  void admit_next() noexcept;
  void close_passes() noexcept;
  [[nodiscard]] std::uint32_t draw_shuffled(std::span<Use> rows) noexcept;
  [[nodiscard]] std::uint32_t draw_in_order(std::span<Use> rows) noexcept;
  [[nodiscard]] Use take_use(std::uint32_t slot) noexcept;

  const PlanConfig config_;
  EchoFactor factor_;
  Xoshiro256 random_{0};

  // Input
  std::vector<std::uint32_t> inbox_;  // slots of items fed and not yet admitted: a ring of config_.slots
  std::uint64_t fed_ = 0;             // items so far
  std::uint64_t admitted_ = 0;        // items so far
  Fifo<std::uint64_t> pass_ends_;     // value of fed_ at the end of each pass that is not completely admitted
  bool ended_ = false;
  Extent extent_;
  std::uint64_t pass_ = 0;           // number of the pass that is being admitted
  std::uint64_t pass_begin_ = 0;     // items admitted before it
  std::uint64_t admitted_uses_ = 0;  // of all items admitted so far

  // Output
  std::uint64_t drawn_ = 0;      // uses so far
  std::uint64_t iteration_ = 0;  // its number
  Atomic<bool> finished_;
  Fifo<std::uint64_t> iteration_ends_;  // value of drawn_ at the end of each iteration with a known end

  // An adaptive factor: its pool, and its decisions
  std::unique_ptr<AdaptivePool> adaptive_;  // null: the factor is fixed
  std::vector<std::uint32_t> replay_;       // decisions of these passes to take again
  std::size_t decisions_ = 0;               // so far
  std::uint32_t taken_ = 0;                 // events before this batch
  bool begun_ = false;                      // the pool has begun this batch
  bool decided_ = false;                    // all events before this batch are taken
  bool filling_ = false;                    // uses did not suffice, so the pool is to be full before the next batch
  bool drained_ = false;
  Fifo<std::uint64_t> least_uses_;     // at the end of each pass whose iteration goes on: of its items and earlier ones
  std::uint64_t iteration_begin_ = 0;  // value of drawn_
  std::uint64_t first_epoch_ = 0;
  mutable std::mutex log_mutex_;
  std::map<std::uint64_t, GrowingDecisions> log_;  // guarded by log_mutex_
  Atomic<bool> diverged_;

  // The pool of a fixed factor
  Atomic<std::uint32_t> resident_;
  std::uint32_t left_ = 0;               // entries in use
  std::vector<std::uint32_t> entries_;   // slot numbers that may be drawn, one for each use
  std::vector<std::uint32_t> deferred_;  // entries deferred to the next batch; unique_in_batch only
  std::vector<Item> pool_;               // by slot
  std::uint32_t batch_ = 1;              // never 0
  std::vector<std::uint32_t>
      taken_by_;  // by slot: the last batch that took the item, modulo 2^32; unique_in_batch only
};

}  // namespace pyecho
