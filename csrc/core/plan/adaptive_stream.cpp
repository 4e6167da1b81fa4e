#include "core/plan/adaptive_stream.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace pyecho {
void AdaptiveStream::begin(const StreamBegin& from, const Extent& extent) {
  if (extent.uses != kUnknown) {
    throw std::invalid_argument("with an adaptive factor the source's speed decides the uses of a pass");
  }
  Stream::begin(from, extent);
  pool_.clear();
  state_ = Deciding::kNotBegun;
  taken_ = 0;
  filling_ = drained_ = diverged_ = false;
  least_uses_.clear();
  iteration_begin_ = 0;
  decisions_.clear();
  const auto log = config_.replay.find(from.epoch);
  replay_ = log == config_.replay.end() ? Decisions() : log->second;
}

void AdaptiveStream::replay(Decisions decisions) {
  const auto [from, with] = std::ranges::mismatch(decisions, replay_);
  diverged_ = diverged_ || (from != decisions.end() && with != replay_.end());
  if (decisions.size() > replay_.size()) {
    replay_ = std::move(decisions);
  }
}

std::uint64_t AdaptiveStream::min_items(std::uint64_t /*draws*/) const noexcept {
  if (filling_) {
    return config_.capacity - pool_.resident();
  }
  return awaited_ || decisions_.size() < replay_.size() ? 1 : pool_.lacking(config_.batch_size);
}

Outcome AdaptiveStream::ready(bool awaited) {
  awaited_ = awaited;
  if (!decide(awaited)) {
    return Outcome::kEmpty;
  }
  return uses_left_in_iteration() == 0 || exhausted() ? Outcome::kEnd : Outcome::kOk;
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
  end_iterations();
  pool_.begin_draws(config_.batch_size);
  decisions_.push_back(taken_);
  state_ = Deciding::kDone;
  return true;
}

bool AdaptiveStream::take_what_arrived(bool awaited) {
  const std::size_t decided = decisions_.size();
  const bool replays = decided < replay_.size();
  const std::uint32_t wanted = replays ? replay_[decided] : std::numeric_limits<std::uint32_t>::max();
  while (taken_ < wanted && !drained_ && take_event()) {
    ++taken_;
  }
  const bool enough = pool_.suffices(config_.batch_size);
  if (replays) {
    if (drained_ ? taken_ < wanted : taken_ < wanted ? input_.has_item() : !enough) {
      diverged_ = true;
      replay_.clear();
      return take_what_arrived(awaited);
    }
    return taken_ == wanted;
  }
  if (drained_) {
    return true;
  }
  filling_ = filling_ || !enough;
  return (!filling_ || pool_.resident() == config_.capacity) &&
         (awaited || pool_.suffices_without_repeats(config_.batch_size));
}

// Takes the next event of the input. Returns false if there is none, or the pool has no room for it.
bool AdaptiveStream::take_event() {
  if (input_.at_pass_end()) {
    input_.close_pass();
    drained_ = input_.over();
    if (drained_) {
      pool_.drain();
    }
    if (config_.iteration_uses == 0) {
      // The last one ends with the pool.
      least_uses_.push_back(drained_ ? kUnknown : input_.taken() * config_.min_uses);
    }
    return true;
  }
  if (!input_.has_item() || !pool_.has_room()) {
    return false;
  }
  pool_.admit(input_.take());
  return true;
}

// Ends an iteration if the end of its pass was taken, it has a batch, and there are as many uses as its items have at
// least. After the last batch, ends all.
void AdaptiveStream::end_iterations() {
  while (!least_uses_.empty() && (exhausted() || (drawn_ >= least_uses_.front() && drawn_ > iteration_begin_))) {
    least_uses_.pop_front();
    iteration_ends_.push_back(drawn_);
    iteration_begin_ = drawn_;
  }
}

}  // namespace pyecho
