// A stream with an adaptive echo factor: what to take of the input before each batch.
//
// Takes the items that have arrived at the beginning of each batch. If they are too few, older ones are repeated
// (RoundsPool), but only for a batch that the consumer waits for: else a fresh item may still come in time. The number
// of events of the input (items, ends of passes) taken before a batch is its decision. Where there are decisions to take
// again, it takes as many, so the draws depend on them instead of the time.
//
// An iteration ends at the first batch boundary at which the end of its pass was taken and as many uses were drawn as
// the items so far have at least; it has a batch, if there are enough. At the end of the input only the least uses are
// drawn.
//
// At a joint (Segments), which is an event, items of the next segment begin to wait in slots, and each takes the place of
// one that may leave, as if it were admitted: more events. Once none may leave, or too few uses for a batch are left,
// items that remain have their least uses. Then, mostly in the middle of a batch, the next segment begins as a run does,
// and decides once more for that batch. The items for nearly a full pool have come by then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/rounds_pool.hpp"
#include "core/plan/stream.hpp"

namespace pyecho {

class AdaptiveStream : public Stream {
 public:
  explicit AdaptiveStream(const PlanConfig& config) : Stream(config), pool_(config) {}

  void begin(const StreamBegin& from, const Extent& extent) {
    begin_at(from, extent);
    pool_.left().clear();
    diverged_ = false;
    decided_ = 0;
    batch_begin_ = 0;
    replay_.clear();
    replayed_ = 0;
    least_uses_.clear();
    ended_before_ = config_.iteration_uses > 0 ? 0 : from.passes - from.at.iterations;
    logs_.clear();
    add_log(may_cross() ? cross() : Joint{.fed = 0, .pass = from.epoch, .parts = 0});
    begin_segment();
    segment_uses_ = lead_;
  }
  // After begin(): takes these decisions again, and those of PlanConfig::replay if they go on longer.
  void replay(Decisions decisions) {
    replay_.erase(replay_.begin(), replay_.begin() + static_cast<std::ptrdiff_t>(std::exchange(replayed_, 0)));
    const auto [from, with] = std::ranges::mismatch(decisions, replay_);
    diverged_ = diverged_ || (from != decisions.end() && with != replay_.end());
    if (decisions.size() > replay_.size()) {
      replay_ = std::move(decisions);
    }
  }

  // Rows of no item belong to decisions of an earlier segment.
  Outcome ready(bool awaited) {
    awaited_ = awaited;
    if (lead_ > 0) {
      return Outcome::kOk;
    }
    while (decide(awaited)) {
      if (uses_left_in_iteration() == 0 || exhausted()) {
        return Outcome::kEnd;
      }
      if (!may_cross() || pool_.resident() > 0) {
        return Outcome::kOk;
      }
      cross();
      begin_segment();
    }
    return Outcome::kEmpty;
  }
  std::uint32_t draw_some(std::span<Use> rows) { return pool_.draw(rows, random_); }
  void end_batch() noexcept {
    state_ = Deciding::kNotBegun;
    batch_begin_ = drawn_;
  }
  void next_iteration() noexcept {
    if (exhausted()) {
      end_iteration();
    }
    Stream::next_iteration(exhausted());
  }
  [[nodiscard]] std::uint64_t min_items(std::uint64_t /*draws*/) const noexcept {
    if (filling_ && !joining_) {
      return config_.capacity - pool_.resident();
    }
    return awaited_ || joining_ || replayed_ < replay_.size() ? 1 : pool_.lacking(config_.batch_size);
  }
  [[nodiscard]] std::uint32_t resident() const noexcept { return pool_.resident(); }
  [[nodiscard]] bool holds(std::uint32_t slot) const noexcept { return pool_.holds(slot); }
  void forget_segment() noexcept {
    forget_begun();
    logs_.erase(logs_.begin());
  }

  // Slots of items that left between two of their uses, since the caller cleared this.
  [[nodiscard]] std::vector<std::uint32_t>& left() noexcept { return pool_.left(); }
  // The decisions of the segments that are remembered: see segments(), and the next one once its joint was taken.
  struct Log {
    SegmentName segment;
    Decisions decisions;
  };
  [[nodiscard]] const std::vector<Log>& logs() const noexcept { return logs_; }
  // Returns the number of decisions since begin().
  [[nodiscard]] std::uint64_t decided() const noexcept { return decided_; }
  // True if the decisions to take again cannot be those of this input: the stream has gone on without them.
  [[nodiscard]] bool diverged() const noexcept { return diverged_; }

 private:
  enum class Deciding : std::uint8_t { kNotBegun, kBegun, kDone };

  [[nodiscard]] bool exhausted() const noexcept { return over() && pool_.resident() == 0; }
  // Takes the events before the next batch: those that have arrived, or as many as were taken before. Returns false if
  // some must be fed first.
  [[nodiscard]] bool decide(bool awaited) {
    if (state_ == Deciding::kDone) {
      return true;
    }
    if (state_ == Deciding::kNotBegun) {
      pool_.begin_batch();
      state_ = Deciding::kBegun;
      events_ = 0;
    }
    if (!take_what_arrived(awaited)) {
      return false;
    }
    filling_ = false;
    if (drawn_ == batch_begin_) {
      end_iteration();
    }
    pool_.begin_draws(config_.batch_size);
    logs_[logs_.size() - (joining_ ? 2 : 1)].decisions.push_back(events_);
    ++decided_;
    replayed_ += replayed_ < replay_.size() ? 1 : 0;
    state_ = Deciding::kDone;
    return true;
  }
  [[nodiscard]] bool take_what_arrived(bool awaited) {
    const bool replays = replayed_ < replay_.size();
    const std::uint32_t wanted = replays ? replay_[replayed_] : std::numeric_limits<std::uint32_t>::max();
    while (events_ < wanted && !draining_ && take_event()) {
      ++events_;
    }
    const bool enough = pool_.suffices(config_.batch_size);
    if (replays) {
      const bool fits = events_ < wanted ? !draining_ && !has_event() : draining_ || joining_ || enough;
      if (!fits) {
        diverged_ = true;
        replay_.clear();
        replayed_ = 0;
        return take_what_arrived(awaited);
      }
      if (events_ < wanted) {
        return false;
      }
    }
    if (joining_ && !draining_ && !(enough && pool_.may_leave())) {
      drain();
    }
    if (draining_ || replays) {
      return true;
    }
    filling_ = filling_ || !enough;
    return (!filling_ || joining_ || pool_.resident() == config_.capacity) &&
           (awaited || pool_.suffices_without_repeats(config_.batch_size));
  }
  // Takes the next event of the input. Returns false if there is none, or the pool has no room for it.
  [[nodiscard]] bool take_event() {
    if (may_cross() && !joining_) {
      joining_ = true;
      add_log(joints_.front());
      return true;
    }
    if (!joining_ && at_pass_end()) {
      close_pass();
      if (over()) {
        drain();
      }
      if (config_.iteration_uses == 0) {
        // The last one ends with the pool.
        const std::uint64_t least = (taken_ - segment_items_) * config_.min_uses;
        least_uses_.push_back(over() ? kUnknown : segment_uses_ + least);
      }
      return true;
    }
    if (joining_ && !has_event() && ended()) {
      drain();
      return true;
    }
    if (!has_event() || !pool_.has_room(waiting_)) {
      return false;
    }
    pool_.make_room(waiting_);
    if (joining_) {
      ++waiting_;
    } else {
      pool_.admit(take());
    }
    return true;
  }
  // Returns true if an item has been fed that is no event yet.
  [[nodiscard]] bool has_event() const noexcept { return fed_ - taken_ > waiting_; }
  void drain() {
    draining_ = true;
    pool_.drain();
  }
  void begin_segment() {
    pool_.clear();
    state_ = Deciding::kNotBegun;
    events_ = waiting_ = 0;
    filling_ = draining_ = joining_ = false;
    segment_items_ = taken_;
    segment_uses_ = drawn_;
    if (const auto log = config_.replay->find(logs_.back().segment); log != config_.replay->end()) {
      replay(log->second);
    }
  }
  // The name of the next segment tells that the log of the last one goes up to a joint.
  void add_log(const Joint& joint) {
    logs_.push_back({.segment = {.epoch = epoch_, .pass = joint.pass, .parts = joint.parts}, .decisions = {}});
  }
  // Ends the iteration if the end of its pass was taken, it has a batch, and there are as many uses as its items have at
  // least. After the last batch, all iterations end.
  void end_iteration() {
    if (ended_before_ == 0 && least_uses_.empty()) {
      return;
    }
    const bool is_drawn = ended_before_ > 0 || drawn_ >= least_uses_.front();
    if (exhausted() || (is_drawn && !at_iteration_begin())) {
      iteration_ends_.push_back(drawn_);
      if (ended_before_ > 0) {
        --ended_before_;
      } else {
        least_uses_.pop_front();
      }
    }
  }

  RoundsPool pool_;
  std::vector<Log> logs_;
  Decisions replay_;          // decisions to take again
  std::size_t replayed_ = 0;  // of them
  std::uint64_t decided_ = 0;
  bool diverged_ = false;
  Deciding state_ = Deciding::kNotBegun;  // of this batch
  std::uint32_t events_ = 0;              // before this batch
  bool joining_ = false;                  // the joint was taken,
  std::uint32_t waiting_ = 0;             // and items of the next segment that have a place
  bool awaited_ = true;                   // as ready() was told last
  bool filling_ = false;                  // uses did not suffice, so the pool is to be full before the next batch
  bool draining_ = false;                 // of the pool: no item is admitted in this segment
  Fifo<std::uint64_t> least_uses_;   // at the end of each pass whose iteration goes on: of its items and earlier ones
  std::uint64_t ended_before_ = 0;   // such passes before the segment of begin(), whose uses are drawn
  std::uint64_t batch_begin_ = 0;    // value of drawn_
  std::uint64_t segment_items_ = 0;  // value of taken_ at the beginning of the segment
  std::uint64_t segment_uses_ = 0;   // value of drawn_ there
};

}  // namespace pyecho
