#include "core/plan/adaptive_stream.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

namespace pyecho {

void AdaptiveStream::begin(const StreamBegin& from, const Extent& extent) {
  if (extent.uses != kUnknown) {
    throw std::invalid_argument("with an adaptive factor the source's speed decides the uses of a pass");
  }
  Stream::begin(from, extent);
  pool_.left().clear();
  diverged_ = false;
  decided_ = 0;
  batch_begin_ = 0;
  replay_.clear();
  replayed_ = 0;
  least_uses_.clear();
  ended_before_ = config_.iteration_uses > 0 ? 0 : from.passes - from.at.iterations;
  logs_.clear();
  add_log(input_.may_cross() ? cross() : Joint{.fed = 0, .pass = from.epoch, .parts = 0});
  begin_segment();
  segment_uses_ = lead_;
}

void AdaptiveStream::begin_segment() {
  pool_.clear();
  state_ = Deciding::kNotBegun;
  taken_ = waiting_ = 0;
  filling_ = draining_ = joining_ = false;
  segment_items_ = input_.taken();
  segment_uses_ = drawn_;
  if (const auto log = config_.replay->find(logs_.back().segment); log != config_.replay->end()) {
    replay(log->second);
  }
}

// The name of the next segment tells that the log of the last one goes up to a joint.
void AdaptiveStream::add_log(const Joint& joint) {
  logs_.push_back({.segment = {.epoch = epoch(), .pass = joint.pass, .parts = joint.parts}, .decisions = {}});
}

void AdaptiveStream::replay(Decisions decisions) {
  replay_.erase(replay_.begin(), replay_.begin() + static_cast<std::ptrdiff_t>(std::exchange(replayed_, 0)));
  const auto [from, with] = std::ranges::mismatch(decisions, replay_);
  diverged_ = diverged_ || (from != decisions.end() && with != replay_.end());
  if (decisions.size() > replay_.size()) {
    replay_ = std::move(decisions);
  }
}

std::uint64_t AdaptiveStream::min_items(std::uint64_t /*draws*/) const noexcept {
  if (filling_ && !joining_) {
    return config_.capacity - pool_.resident();
  }
  return awaited_ || joining_ || replayed_ < replay_.size() ? 1 : pool_.lacking(config_.batch_size);
}

// Rows of no item belong to decisions of an earlier segment.
Outcome AdaptiveStream::ready(bool awaited) {
  awaited_ = awaited;
  if (lead_ > 0) {
    return Outcome::kOk;
  }
  while (decide(awaited)) {
    if (uses_left_in_iteration() == 0 || exhausted()) {
      return Outcome::kEnd;
    }
    if (!input_.may_cross() || pool_.resident() > 0) {
      return Outcome::kOk;
    }
    cross();
    begin_segment();
  }
  return Outcome::kEmpty;
}

// Takes the events before the next batch: those that have arrived, or as many as were taken before. Returns false if
// some must be fed first.
bool AdaptiveStream::decide(bool awaited) {
  if (state_ == Deciding::kDone) {
    return true;
  }
  if (state_ == Deciding::kNotBegun) {
    pool_.begin_batch();
    state_ = Deciding::kBegun;
    taken_ = 0;
  }
  if (!take_what_arrived(awaited)) {
    return false;
  }
  filling_ = false;
  if (drawn_ == batch_begin_) {
    end_iteration();
  }
  pool_.begin_draws(config_.batch_size);
  logs_[logs_.size() - (joining_ ? 2 : 1)].decisions.push_back(taken_);
  ++decided_;
  replayed_ += replayed_ < replay_.size() ? 1 : 0;
  state_ = Deciding::kDone;
  return true;
}

bool AdaptiveStream::take_what_arrived(bool awaited) {
  const bool replays = replayed_ < replay_.size();
  const std::uint32_t wanted = replays ? replay_[replayed_] : std::numeric_limits<std::uint32_t>::max();
  while (taken_ < wanted && !draining_ && take_event()) {
    ++taken_;
  }
  const bool enough = pool_.suffices(config_.batch_size);
  if (replays) {
    const bool fits = taken_ < wanted ? !draining_ && !has_item() : draining_ || joining_ || enough;
    if (!fits) {
      diverged_ = true;
      replay_.clear();
      replayed_ = 0;
      return take_what_arrived(awaited);
    }
    if (taken_ < wanted) {
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

// Returns true if an item has been fed that is no event yet.
bool AdaptiveStream::has_item() const noexcept { return input_.fed() - input_.taken() > waiting_; }

// Takes the next event of the input. Returns false if there is none, or the pool has no room for it.
bool AdaptiveStream::take_event() {
  if (input_.may_cross() && !joining_) {
    joining_ = true;
    add_log(input_.joint());
    return true;
  }
  if (!joining_ && input_.at_pass_end()) {
    input_.close_pass();
    if (input_.over()) {
      drain();
    }
    if (config_.iteration_uses == 0) {
      // The last one ends with the pool.
      const std::uint64_t least = (input_.taken() - segment_items_) * config_.min_uses;
      least_uses_.push_back(input_.over() ? kUnknown : segment_uses_ + least);
    }
    return true;
  }
  if (joining_ && !has_item() && input_.ended()) {
    drain();
    return true;
  }
  if (!has_item() || !pool_.has_room(waiting_)) {
    return false;
  }
  pool_.make_room(waiting_);
  if (joining_) {
    ++waiting_;
  } else {
    pool_.admit(input_.take());
  }
  return true;
}

void AdaptiveStream::drain() {
  draining_ = true;
  pool_.drain();
}

// Ends the iteration if the end of its pass was taken, it has a batch, and there are as many uses as its items have at
// least. After the last batch, all iterations end.
void AdaptiveStream::end_iteration() {
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

void AdaptiveStream::next_iteration() noexcept {
  if (exhausted()) {
    end_iteration();
  }
  Stream::next_iteration();
}

}  // namespace pyecho
