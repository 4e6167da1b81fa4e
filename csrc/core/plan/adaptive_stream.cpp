// The part of StreamPlan that serves an adaptive factor: what to take of the input before each batch.
#include <algorithm>
#include <optional>

#include "core/plan/stream_plan.hpp"

namespace pyecho {

void StreamPlan::begin_decisions(std::uint64_t epoch) {
  if (!adaptive_) {
    return;
  }
  adaptive_->clear();
  taken_ = 0;
  decisions_ = 0;
  events_ = 0;
  begun_ = decided_ = filling_ = drained_ = beyond_horizon_ = false;
  least_uses_.clear();
  iteration_begin_ = 0;
  diverged_.store_relaxed(false);
  first_epoch_ = epoch;
  const auto log = config_.replay.find(epoch);
  const auto values = log == config_.replay.end() ? std::span<const std::uint32_t>() : log->second.values();
  replay_.assign(values.begin(), values.end());
  const std::scoped_lock lock(log_mutex_);
  log_.erase(epoch);
  schedule_.clear();
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

void StreamPlan::extend(std::span<const Knot> knots) {
  const std::scoped_lock lock(log_mutex_);
  schedule_.extend(knots);
}

std::vector<Knot> StreamPlan::knots() const {
  const std::scoped_lock lock(log_mutex_);
  return schedule_.knots();
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
    if (extent_.iteration_uses == 0) {
      least_uses_.push_back(drained_ ? kUnknown : admitted_ * config_.min_uses);  // the last one ends with the pool
    }
    if (!config_.joint() || extent_.iteration_uses == 0 || drained_) {
      return true;
    }
  }
  if (admitted_ == fed_ || !adaptive_->has_room()) {
    return false;
  }
  const std::uint32_t slot = inbox_[admitted_ % inbox_.size()];
  const std::uint64_t index = admitted_ - pass_begin_;
  const bool additional = config_.joint() && index >= extent_.items;
  adaptive_->admit(slot, additional ? index % std::max<std::uint64_t>(1, extent_.items) : index, additional);
  ++admitted_;
  return true;
}

// Ends an iteration if the end of its pass was taken, it has a batch, and there are as many uses as its items have at least.
// Behind the last batch, ends all.
void StreamPlan::end_iterations() {
  while (!least_uses_.empty() && (exhausted() || (drawn_ >= least_uses_.front() && drawn_ > iteration_begin_))) {
    least_uses_.pop_front();
    iteration_ends_.push_back(drawn_);
    iteration_begin_ = drawn_;
  }
}

// Takes the events before the next batch. Returns false if some must be fed first, or a joint plan is at its horizon.
bool StreamPlan::decide() noexcept {
  if (decided_) {
    return true;
  }
  if (!begun_) {
    adaptive_->begin_batch();
    begun_ = true;
    taken_ = 0;
  }
  if (!(config_.joint() && decisions_ >= replay_.size() ? take_what_is_due() : take_what_arrived())) {
    return false;
  }
  filling_ = false;
  end_iterations();
  adaptive_->begin_draws(config_.batch_rows);
  ++decisions_;
  events_ += taken_;
  const std::scoped_lock lock(log_mutex_);
  log_[first_epoch_].add(taken_);
  return decided_ = true;
}

// The same, for one rank alone or by a log.
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

// The same, by the schedule. Each event is waited for before the next is thought of, so time decides nothing.
bool StreamPlan::take_what_is_due() noexcept {
  const std::optional<std::uint64_t> due = [this] {
    const std::scoped_lock lock(log_mutex_);
    return schedule_.due(decisions_, events_);
  }();
  beyond_horizon_ = !due && !drained_;
  if (beyond_horizon_) {
    return false;
  }
  for (;; ++taken_) {
    resident_.store_relaxed(adaptive_->resident());
    if (drained_ || !adaptive_->has_room()) {
      return true;
    }
    if (taken_ >= due) {
      filling_ = filling_ || !adaptive_->suffices(config_.batch_rows);
      if (!filling_ || full()) {
        return true;
      }
    }
    if (!take_event()) {
      return false;
    }
  }
}

std::uint32_t StreamPlan::draw_adaptive(std::span<Use> rows) {
  const std::uint32_t drawn = adaptive_->draw(rows, random_);
  drawn_ += drawn;
  resident_.store_relaxed(adaptive_->resident());
  return drawn;
}

}  // namespace pyecho
