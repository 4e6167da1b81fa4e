// Decides which item fills which row of which batch: the streams of a rank, one use from each in turn. Pure arithmetic.
//
//     item j of a pass ──▶ stream j mod k ──▶ pool, draws ──▶ use t comes from stream t mod k
//
// A run over several ranks is made of V streams, dealt to R ranks as k = V / R each (PlanConfig). Since each stream has
// draws of its own, the same uses leave for any R that divides V, and rows r, r + R, ... of the global batch are those of
// rank r. Else there is one stream, and this class only numbers its items.
//
//     BatchPlan plan(config);
//     plan.begin(epoch, extent);
//     plan.feed(slot of the next item);  or  plan.end_pass();  or  plan.end_input();
//     Outcome outcome = plan.draw(rows, drawn);  and after the last row of a batch  plan.end_batch();
//
// A plan is a function of its configuration, the first epoch, its extent and the lengths of the passes, so where it stood
// is saved as a few numbers and found again by replaying it (replay.hpp). For that it numbers the items, from 0 after
// begin().
//
// With several streams, items wait for their stream while others draw, so PlanConfig::slots has room for more of them
// (waiting_slots()). The bound: stream t asks for an item, and stream i has drawn as often, D times, but for one. Each pass
// has U uses in both, n items in one and n or n - 1 in the other, spread evenly (PlanConfig::even_factor), so that a items
// have a * f uses but for less than 2, f = U / n. Let c be the capacity of a stream.
//
//     t has room, and its items have at most m <= f + 1 uses:   items admitted  < (D + (c - 1) * m + 2) / f
//     i was full when it drew last:                             items admitted  > (D + c - 3) / f
//     i was fed at most one item more than t, which has none waiting.
//
// With equal f, fewer than c + 4 items wait for i. If f differs, D + c - 1 <= U, because i has c - 1 uses left, so it is one
// more at most. Hence c and kInboxSlots for each stream. Passes that flow have equally many items in all streams: else
// streams that draw equally often would drift apart.
//
// Not thread-safe: one thread at a time, except for finished(), resident(), log(), decisions(), diverged(), and number_of() a
// slot not yet released.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/stream_plan.hpp"

namespace pyecho {

// Several passes of equal length, one after the other. A run may read a short source millions of times.
struct PassRun {
  std::uint64_t passes;
  std::uint64_t items;  // of each
};

class BatchPlan {
 public:
  // Throws std::invalid_argument if the configuration is invalid, std::bad_alloc.
  explicit BatchPlan(const PlanConfig& config);
  // Returns the bytes that a plan of this configuration allocates. Throws std::invalid_argument.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config);
  // Returns how many slots a plan needs besides those for its capacity and for items ahead of it.
  [[nodiscard]] static std::uint64_t waiting_slots(std::uint32_t streams, std::uint32_t capacity) noexcept {
    return streams == 1 ? 0 : capacity + std::uint64_t{kInboxSlots} * streams;
  }

  // Drops all state and starts with iteration and pass number `epoch`. `extent`: of all streams together, which are dealt the
  // items in turn and have equally many uses. Several streams end together only if their uses are known. Throws
  // std::invalid_argument if the uses cannot be dealt so, or are fewer than the items of some stream; std::bad_alloc.
  void begin(std::uint64_t epoch, const Extent& extent);
  // After begin(): takes these decisions again, and those of PlanConfig::replay if they go on longer.
  void replay(std::vector<std::uint32_t> decisions) { streams_[0].replay(std::move(decisions)); }

  // -- Input, in source order --

  // Adds the next item, which lies in this slot. At most PlanConfig::slots items may be fed and not yet drawn to their last
  // use.
  void feed(std::uint32_t slot) noexcept {
    streams_[streams_.size() == 1 ? 0 : open_items() % streams_.size()].feed(slot);
    numbers_[slot] = fed_++;
  }
  // Marks the items fed since the last end_pass() as a complete pass. Another pass follows.
  void end_pass();
  // Same as end_pass(), but no item follows, so the pool drains. Returns false if the input had ended before.
  bool end_input();

  // -- Output --

  // Draws the next uses into `rows` and sets `drawn` to their number, for every outcome.
  // kOk: all of `rows`. kEmpty: an item or the end must be fed first. kEnd: no use is left for this batch; if `drawn` is
  // also 0, the iteration is over.
  Outcome draw(std::span<Use> rows, std::uint32_t& drawn) noexcept;
  // Returns the outcome that a draw of one use would have.
  Outcome ready() noexcept { return streams_[turn_].ready(); }
  // Ends the batch; the next draw belongs to another one.
  void end_batch() noexcept;
  // Starts the next iteration. Requires the current one to be over.
  void next_iteration() noexcept;

  // Calls visit(slots) with the slots that items have left between two uses, if there are any. With an adaptive factor, call
  // it after each draw() and ready().
  template <class Visit>
  void take_left(const Visit& visit) {
    streams_[0].take_left(visit);  // an adaptive factor has one stream
  }
  // Returns the decisions of an adaptive factor since begin(), without a copy. Any thread.
  [[nodiscard]] Decisions decisions() const { return streams_[0].decisions(); }
  // Returns those of all begin() so far. Any thread.
  [[nodiscard]] DecisionLog log() const { return streams_[0].log(); }
  // True if PlanConfig::replay cannot be that of this input: the plan has gone on without it. Any thread.
  [[nodiscard]] bool diverged() const noexcept { return streams_[0].diverged(); }

  // True once the last iteration is over: every use of every item has been drawn, and no input can follow. Any thread.
  [[nodiscard]] bool finished() const noexcept;
  // Returns a lower bound of the items to feed before `draws` more draws, or all that the iteration has left, can be made
  // (if the input does not end). Valid after draw() or ready() returned kEmpty.
  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept {
    const std::size_t streams = streams_.size();
    return streams == 1 ? streams_[0].min_items(draws) : (streams_[turn_].min_items(1) - 1) * streams + 1;
  }
  // Returns the number of items in the pool. Any thread; in other threads a recent number.
  [[nodiscard]] std::uint32_t resident() const noexcept;

  // -- What a saved state tells of a plan --

  [[nodiscard]] const PlanConfig& config() const noexcept { return config_; }
  // Returns the number of items fed since begin().
  [[nodiscard]] std::uint64_t fed() const noexcept { return fed_; }
  // Returns the number of items fed since the last end_pass().
  [[nodiscard]] std::uint64_t open_items() const noexcept { return fed_ - pass_fed_; }
  [[nodiscard]] bool ended() const noexcept { return streams_[0].ended(); }
  // Returns the lengths of the passes that have ended.
  [[nodiscard]] const std::vector<PassRun>& passes() const noexcept { return passes_; }
  // Returns the number of the item that was fed in this slot last.
  [[nodiscard]] std::uint64_t number_of(std::uint32_t slot) const noexcept { return numbers_[slot]; }
  // Calls visit(slot, number) for every item that was fed and is not drawn to its last use.
  template <class Visit>
  void each_item(const Visit& visit) const {
    for (const StreamPlan& stream : streams_) {
      stream.each_slot([&](std::uint32_t slot) { visit(slot, numbers_[slot]); });
    }
  }

 private:
  static constexpr std::uint32_t kInboxSlots = 5;

  void count_pass();

  const PlanConfig config_;
  std::vector<std::uint64_t> numbers_;  // by slot
  std::deque<StreamPlan> streams_;      // a deque, because they cannot be moved
  std::size_t turn_ = 0;                // the stream of the next use
  std::uint64_t fed_ = 0;               // items so far
  std::uint64_t pass_fed_ = 0;          // items fed before the pass that is being fed
  std::vector<PassRun> passes_;         // that have ended
};

}  // namespace pyecho
