// The part of StreamPlan that serves the joint adaptive factor of several ranks.
//
// The pools of all ranks are alike but for the items in them, as long as they admit equally many before each batch. So the
// number follows from what is the same on all ranks: the schedule, the pool, and the items of a pass (Extent::total_items).
// - Up to the last knot of the schedule a plan admits as many items as that says, as far as the pool has room.
// - If the pool cannot make a batch then, the plan waits for items until the pool is full, whatever the schedule says.
// - Behind the last knot it waits for another one.
// A rank that has fewer items than another admits ghosts behind its own: items without payload. Their uses become additional
// uses of the last items it had (Spares).
#include <algorithm>
#include <optional>

#include "core/plan/stream_plan.hpp"

namespace pyecho {

// Closes passes whose items are all admitted. If there is one only, so many items are the end even before it is fed.
void StreamPlan::close_joint_passes() {
  const bool one = extent_.total_items > 0;
  bool last = one && joint_items_ == extent_.total_items;
  for (; !one && !pass_ends_.empty() && pass_ends_.front() == admitted_; pass_ends_.pop_front()) {
    ++pass_;
    pass_begin_ = admitted_;
    last = ended_ && pass_ends_.size() == 1;
  }
  if (last && !drained_) {
    drained_ = true;
    adaptive_->drain();
    sift_left();
    if (extent_.iteration_uses == 0) {
      least_uses_.push_back(kUnknown);  // the iteration ends with the pool
    }
  }
}

// Admits an item or a ghost. Returns false if an item must be fed first.
bool StreamPlan::admit_jointly() {
  for (; extent_.items == 0 && admitted_ < fed_; ++admitted_) {  // lent by another rank, for additional uses
    static_cast<void>(spares_->admit(inbox_[admitted_ % inbox_.size()], admitted_, false));
  }
  if (admitted_ < fed_) {
    const std::uint32_t slot = inbox_[admitted_ % inbox_.size()];
    const std::uint64_t source_index = admitted_ - pass_begin_;
    adaptive_->admit(slot, source_index);
    if (const std::uint32_t free = spares_->admit(slot, source_index, true); free != Spares::kNone) {
      adaptive_->left().push_back(free);
    }
    ++admitted_;
  } else if (ended_ && extent_.total_items > 0) {
    adaptive_->admit(ghosts_.back(), 0);
    ghosts_.pop_back();
  } else {
    return false;
  }
  ++joint_items_;
  sift_left();
  return true;
}

// Keeps what left the pool and is a ghost or a spare from the caller, which would release its slot.
void StreamPlan::sift_left() {
  std::erase_if(adaptive_->left(), [this](std::uint32_t slot) {
    if (slot >= config_.slots) {
      ghosts_.push_back(slot);
      return true;
    }
    return spares_->leaves(slot);
  });
}

// Takes the items before the next batch, as decide() does. Returns false if an item or a knot is missing.
bool StreamPlan::decide_jointly() noexcept {
  if (!begun_) {
    adaptive_->begin_batch();
    sift_left();
    begun_ = true;
    taken_ = 0;
  }
  const bool replays = decisions_ < replay_.size();
  std::uint64_t wanted = joint_items_;
  if (replays) {
    wanted += replay_[decisions_] - std::min(taken_, replay_[decisions_]);
  } else if (!filling_) {
    const std::optional<std::uint64_t> due = schedule_.items_before(decisions_);
    lacks_knot_ = !due;
    if (lacks_knot_) {
      return false;
    }
    wanted = std::max(wanted, *due);
  }
  for (close_joint_passes(); !drained_; close_joint_passes()) {
    const bool full = adaptive_->resident() == config_.capacity;
    if (filling_ ? full : joint_items_ >= wanted || !adaptive_->has_room()) {
      filling_ = !filling_ && !replays && !adaptive_->suffices(config_.batch_rows);
      if (!filling_) {
        break;
      }
      continue;
    }
    if (!admit_jointly()) {
      resident_.store_relaxed(adaptive_->resident());
      return false;
    }
    ++taken_;
  }
  filling_ = false;
  resident_.store_relaxed(adaptive_->resident());
  if (replays && (taken_ != replay_[decisions_] || !(drained_ || adaptive_->suffices(config_.batch_rows)))) {
    diverged_.store_relaxed(true);
    replay_.clear();
    return decide_jointly();
  }
  log_decision();
  return true;
}

// Replaces the uses of ghosts by additional ones, and keeps the slots of spares from release.
void StreamPlan::fill_in(std::span<Use> rows) {
  const std::uint64_t batch = decisions_;  // counted by now, so at least 1
  for (Use& use : rows) {
    if (use.slot < config_.slots) {
      spares_->note(use, batch);
      use.last = use.last && !spares_->leaves(use.slot);
    }
  }
  for (Use& use : rows) {
    if (use.slot >= config_.slots) {
      if (use.last) {
        ghosts_.push_back(use.slot);
      }
      use = spares_->draw(batch);
    }
  }
}

}  // namespace pyecho
