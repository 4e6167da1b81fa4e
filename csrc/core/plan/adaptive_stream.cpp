// The part of StreamPlan that serves an adaptive factor: what to take of the input before each batch.
#include <algorithm>

#include "core/plan/stream_plan.hpp"

namespace pyecho {

void StreamPlan::begin_decisions(std::uint64_t epoch) {
  if (!adaptive_) {
    return;
  }
  adaptive_->clear();
  taken_ = 0;
  decisions_ = 0;
  begun_ = decided_ = filling_ = drained_ = false;
  least_uses_.clear();
  iteration_begin_ = 0;
  diverged_.store_relaxed(false);
  first_epoch_ = epoch;
  const auto log = config_.replay.find(epoch);
  const auto values = log == config_.replay.end() ? std::span<const std::uint32_t>() : log->second.values();
  replay_.assign(values.begin(), values.end());
  const std::scoped_lock lock(log_mutex_);
  log_.erase(epoch);
}

void StreamPlan::replay(std::vector<std::uint32_t> decisions) {
  const auto [from, with] = std::ranges::mismatch(decisions, replay_);
  if (from != decisions.end() && with != replay_.end()) {
    diverged_.store_relaxed(true);
  }
  if (decisions.size() > replay_.size()) {
    replay_ = std::move(decisions);
  }
}

Decisions StreamPlan::decisions() const {
  const std::scoped_lock lock(log_mutex_);
  const auto found = log_.find(first_epoch_);
  return found == log_.end() ? Decisions() : found->second.so_far();
}

DecisionLog StreamPlan::log() const {
  const std::scoped_lock lock(log_mutex_);
  DecisionLog log;
  for (const auto& [epoch, decisions] : log_) {
    log.emplace_hint(log.end(), epoch, decisions.so_far());
  }
  return log;
}

// Takes the next event of the input. Returns false if there is none, or the pool has no room for it.
bool StreamPlan::take_event() {
  if (!pass_ends_.empty() && pass_ends_.front() == admitted_) {
    pass_ends_.pop_front();
    ++pass_;
    pass_begin_ = admitted_;
    drained_ = ended_ && pass_ends_.empty();
    if (drained_) {
      adaptive_->drain();
    }
    if (config_.iteration_uses == 0) {
      least_uses_.push_back(drained_ ? kUnknown : admitted_ * config_.min_uses);  // the last one ends with the pool
    }
    return true;
  }
  if (admitted_ == fed_ || !adaptive_->has_room()) {
    return false;
  }
  adaptive_->admit(inbox_[admitted_ % inbox_.size()], admitted_ - pass_begin_);
  ++admitted_;
  return true;
}

// Ends an iteration if the end of its pass was taken, it has a batch, and there are as many uses as its items have at least.
// After the last batch, ends all.
void StreamPlan::end_iterations() {
  while (!least_uses_.empty() && (exhausted() || (drawn_ >= least_uses_.front() && drawn_ > iteration_begin_))) {
    least_uses_.pop_front();
    iteration_ends_.push_back(drawn_);
    iteration_begin_ = drawn_;
  }
}

// Takes the events before the next batch: those that have arrived, or as many as the log says. Returns false if some must be
// fed first.
bool StreamPlan::decide() noexcept {
  if (decided_) {
    return true;
  }
  if (!begun_) {
    adaptive_->begin_batch();
    begun_ = true;
    taken_ = 0;
  }
  if (!take_what_arrived()) {
    return false;
  }
  filling_ = false;
  end_iterations();
  adaptive_->begin_draws(config_.batch_rows);
  ++decisions_;
  const std::scoped_lock lock(log_mutex_);
  log_[first_epoch_].add(taken_);
  return decided_ = true;
}

bool StreamPlan::take_what_arrived() noexcept {
  const bool replays = decisions_ < replay_.size();
  const std::uint32_t wanted = replays ? replay_[decisions_] : 0xFFFFFFFFU;
  while (taken_ < wanted && !drained_ && take_event()) {
    ++taken_;
  }
  resident_.store_relaxed(adaptive_->resident());
  const bool enough = adaptive_->suffices(config_.batch_rows);
  if (replays && (drained_ ? taken_ < wanted : taken_ < wanted ? admitted_ < fed_ : !enough)) {
    diverged_.store_relaxed(true);
    replay_.clear();
    return take_what_arrived();
  }
  if (replays ? taken_ < wanted : !(drained_ || (filling_ ? full() : enough))) {
    filling_ = !replays;
    return false;
  }
  return true;
}

std::uint32_t StreamPlan::draw_adaptive(std::span<Use> rows) {
  const std::uint32_t drawn = adaptive_->draw(rows, random_);
  drawn_ += drawn;
  resident_.store_relaxed(adaptive_->resident());
  return drawn;
}

}  // namespace pyecho
