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
// (Extent::iteration_uses). Passes flow into each other: end_pass() marks the items fed so far as a complete pass,
// and the items of the next pass may follow while the pool still holds older ones. The pool drains only after
// end_input(). Iteration n draws from the random numbers of (seed, epoch + n).
//
// An adaptive factor takes the items that have arrived at the beginning of each batch, and repeats older ones as far as
// they do not suffice (AdaptivePool). How many events of the input it took is written to a log; with PlanConfig::replay it
// takes as many, so the draws depend on the log instead of the time. An iteration ends at the first batch boundary at
// which the end of its pass was taken and as many uses were drawn as the items so far have at least; it has a batch, if there
// are enough. At the end of the input only the least uses are drawn.
//
// Several ranks take the same decisions if their plans are joint (PlanConfig::joint). Such a plan takes what a Schedule says as
// soon as it is fed, and more only to fill a pool that does not suffice. So its decisions do not depend on when something
// arrives, and the ranks, whose random numbers are the same as well, draw from pools that differ in their items only. Passes
// in iterations of a fixed number of uses may differ in length, so there the end of a pass is no event.
//
// Additional uses. With Extent::total_uses a plan goes on after its items have had their uses, so that streams of several
// lengths end together. With unique_in_batch they also fill batches for which too few other items are left. Items of a pool
// that drains keep their slots then, up to begin(). A pool of one item draws the last use of it only when the next item
// or the end was fed, and so knows whether to keep the slot.
//
// Not thread-safe: one thread at a time, except for finished(), own_uses(), resident(), extend(), knots() and log().
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
#include "core/plan/schedule.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

class StreamPlan {
 public:
  // `numbers`: by slot, a number of the item in it, ascending in the order of the input. Throws std::invalid_argument if
  // the configuration is invalid, std::bad_alloc.
  StreamPlan(const PlanConfig& config, std::span<const std::uint64_t> numbers);
  // Returns the bytes that a plan of this configuration allocates. Throws std::invalid_argument.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config);

  // Drops all state and starts with iteration and pass number `epoch`.
  void begin(std::uint64_t epoch, const Extent& extent);
  // After begin(): takes these decisions again, and those of PlanConfig::replay if they go on longer.
  void replay(std::vector<std::uint32_t> decisions);

  // A joint plan: adds what the ranks have agreed on. Any thread.
  void extend(std::span<const Knot> knots);
  // Returns what of that is still ahead, or the last knot. Any thread.
  [[nodiscard]] std::vector<Knot> knots() const;

  // -- Input, in source order --

  // Adds the next item, which lies in this slot. At most PlanConfig::slots items may be fed and not yet drawn to their last
  // use.
  void feed(std::uint32_t slot) noexcept {
    assert(fed_ - admitted_ < inbox_.size());
    inbox_[fed_++ % inbox_.size()] = slot;
  }
  // Marks the items fed since the last end_pass() as a complete pass. Another pass follows.
  void end_pass() { pass_ends_.push_back(fed_); }
  // Same as end_pass(), but no item follows, so the pool drains.
  void end_input() {
    end_pass();
    ended_ = true;
  }

  // -- Output --

  // Draws the next uses into `rows` and sets `drawn` to their number, for every outcome.
  // kOk: all of `rows`. kEmpty: an item or the end must be fed first. kEnd: no use is left for this batch; if `drawn` is
  // also 0, the iteration is over.
  Outcome draw(std::span<Use> rows, std::uint32_t& drawn) noexcept;
  // Returns the outcome that a draw of one use would have.
  Outcome ready() noexcept;
  // Ends the batch; the next draw belongs to another one. Only matters with unique_in_batch.
  void end_batch() noexcept;
  // Starts the next iteration. Requires the current one to be over.
  void next_iteration() noexcept;

  // Calls visit(slots) with the slots that items have left between two uses, if there are any. With an adaptive factor, call
  // it after each draw() and ready().
  template <class Visit>
  void take_left(const Visit& visit) {
    if (adaptive_ && !adaptive_->left().empty()) {
      visit(std::span<const std::uint32_t>(adaptive_->left()));
      adaptive_->left().clear();
    }
  }
  // Returns the decisions of an adaptive factor since begin(), without a copy. Any thread.
  [[nodiscard]] Decisions decisions() const;
  // Returns those of all begin() so far. Any thread.
  [[nodiscard]] DecisionLog log() const;
  // True if PlanConfig::replay cannot be that of this input: the plan has gone on without it. Any thread.
  [[nodiscard]] bool diverged() const noexcept { return diverged_.load_relaxed(); }

  // True once the last iteration is over: every use of every item has been drawn, and no input can follow. Any thread.
  [[nodiscard]] bool finished() const noexcept { return finished_.load_relaxed(); }
  // Returns a lower bound of the items to feed before `draws` more draws, or all that the iteration has left, can be made
  // (if the input does not end). Valid after draw() or ready() returned kEmpty.
  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept;
  // Any thread.
  [[nodiscard]] OwnUses own_uses() const noexcept {
    return {.count = own_uses_.load_relaxed(), .known_after = own_uses_known_after_.load_relaxed()};
  }
  // Returns the number of items in the pool. Any thread; in other threads a recent number.
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_.load_relaxed(); }

  // Calls visit(slot) for every item that was fed and is not drawn to its last use.
  template <class Visit>
  void each_slot(const Visit& visit) const {
    for (std::uint32_t slot = 0; slot < config_.slots; ++slot) {
      if (adaptive_ ? adaptive_->holds(slot) : pool_[slot].uses_left > 0 && !keeps()) {
        visit(slot);
      }
    }
    for (const std::uint32_t slot : kept_) {
      visit(slot);
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
    return adaptive_ ? drained_ && adaptive_->resident() == 0
                     : drains() && (keeps() ? drawn_ >= extent_.total_uses : remaining_uses() == 0);
  }
  [[nodiscard]] bool keeps() const noexcept { return !kept_.empty(); }
  // True while the last use of the only item waits.
  [[nodiscard]] bool looks_ahead() const noexcept {
    return config_.capacity == 1 && extent_.padded() && admitted_ == fed_ && !ended_;
  }
  [[nodiscard]] bool drains() const noexcept { return ended_ && admitted_ == fed_; }
  [[nodiscard]] std::uint64_t uses_left_in_iteration() const noexcept {
    return iteration_ends_.empty() ? kUnknown : iteration_ends_.front() - drawn_;
  }
  void begin_decisions(std::uint64_t epoch);
  [[nodiscard]] bool decide() noexcept;
  [[nodiscard]] bool take_what_arrived() noexcept;
  [[nodiscard]] bool take_what_is_due() noexcept;
  [[nodiscard]] bool take_event();
  void end_iterations();
  [[nodiscard]] std::uint32_t draw_adaptive(std::span<Use> rows);
  void begin_iteration() noexcept;
  void admit_next() noexcept;
  void close_passes() noexcept;
  void pad() noexcept;
  void note_last_own_use() noexcept;
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
  std::uint64_t drawn_ = 0;         // uses so far
  Atomic<std::uint64_t> own_uses_;  // OwnUses, like the next
  Atomic<std::uint64_t> own_uses_known_after_;
  std::uint64_t iteration_ = 0;  // its number
  Atomic<bool> finished_;
  Fifo<std::uint64_t> iteration_ends_;  // value of drawn_ at the end of each iteration with a known end

  // An adaptive factor: its pool, and its decisions
  std::unique_ptr<AdaptivePool> adaptive_;  // null: the factor is fixed
  std::vector<std::uint32_t> replay_;       // decisions of these passes to take again
  std::size_t decisions_ = 0;               // so far
  std::uint64_t events_ = 0;                // taken before earlier batches
  std::uint32_t taken_ = 0;                 // events before this batch
  bool begun_ = false;                      // the pool has begun this batch
  bool decided_ = false;                    // all events before this batch are taken
  bool filling_ = false;                    // uses did not suffice, so the pool is to be full before the next batch
  bool drained_ = false;
  bool beyond_horizon_ = false;        // of schedule_
  Fifo<std::uint64_t> least_uses_;     // at the end of each pass whose iteration goes on: of its items and earlier ones
  std::uint64_t iteration_begin_ = 0;  // value of drawn_
  std::uint64_t first_epoch_ = 0;
  mutable std::mutex log_mutex_;
  std::map<std::uint64_t, GrowingDecisions> log_;  // guarded by log_mutex_, like the next
  Schedule schedule_;                              // of a joint plan
  Atomic<bool> diverged_;

  // The pool of a fixed factor
  Atomic<std::uint32_t> resident_;
  std::uint32_t left_ = 0;               // entries in use
  std::vector<std::uint32_t> entries_;   // slot numbers that may be drawn, one for each use
  std::vector<std::uint32_t> deferred_;  // entries deferred to the next batch; unique_in_batch only
  std::vector<std::uint32_t> kept_;      // slots of the items that have additional uses, once the pool drains
  bool padded_ = false;                  // additional uses were added in this batch, and no other ones are in entries_
  bool repeats_ = false;                 // every item is in this batch already, and comes again
  std::vector<Item> pool_;               // by slot
  const std::span<const std::uint64_t> numbers_;
  std::uint32_t batch_ = 1;  // never 0
  std::vector<std::uint32_t>
      taken_by_;  // by slot: the last batch that took the item, modulo 2^32; unique_in_batch only
};

}  // namespace pyecho
