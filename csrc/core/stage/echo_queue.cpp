#include "core/stage/echo_queue.hpp"

#include <algorithm>
#include <utility>

#include "core/trace/recorder.hpp"

namespace pyecho {

EchoQueue::EchoQueue(const EchoConfig& config)
    : ring_(config.plan.capacity + std::max(1U, config.prefetch) +
                static_cast<std::uint32_t>(Plan::waiting_slots(config.plan.streams, config.plan.capacity)),
            config.prefetch),
      feed_(ring_),
      plan_(plan_of(config, ring_.slots())) {
  static_cast<void>(begin_epoch(*this, config.epoch, {.items = config.items}));
}

// Plans uses ahead. While a trace is recorded, only one, so that each use passes here and has its spans.
Outcome EchoQueue::draw() {
  trace::Span span(trace::Kind::kPlan);
  feed_.drain_into(plan_);
  next_ = 0;
  const std::size_t most = trace::recording() || plan_.config().adaptive() ? 1 : kUsesAhead;
  const Outcome outcome = plan_.draw(std::span(uses_).first(most), ahead_);
  view_.publish(plan_);
  plan_.take_left([this](std::span<const std::uint32_t> slots) { ring_.release(slots); });
  span.set_value(ahead_);
  if (plan_.config().capacity > 1) {
    trace::record_fill(this, plan_.resident());
  }
  return outcome;
}

Outcome EchoQueue::plan(Use& use) {
  if (ring_.forked()) {
    return Outcome::kForked;
  }
  if (ring_.stopped()) {
    return Outcome::kClosed;
  }
  counts_.clock.enter();  // only here, so that a repeat does not read the clock
  if (at_end()) {
    counts_.clock.end_iteration();
    return Outcome::kEnd;
  }
  const Outcome outcome = draw();
  if (view_.diverged()) [[unlikely]] {
    ahead_ = 0;
    return Outcome::kClosed;
  }
  if (ahead_ > 0) {
    plan_.end_batch();
    counts_.clock.leave();
    return hand_out(use);
  }
  if (outcome == Outcome::kEnd) {
    plan_.next_iteration();
    counts_.clock.end_iteration();
  }
  ring_.announce_released();  // this thread leaves the stage, or waits
  return outcome;
}

Outcome EchoQueue::next(Use& use, Deadline deadline) {
  for (bool late = false;;) {
    if (const Outcome outcome = try_next(use); outcome != Outcome::kEmpty) {
      return outcome;
    }
    if (late) {
      return Outcome::kTimeout;
    }
    late = await_items(deadline) == Outcome::kTimeout || ring_.halted();
  }
}

Replay EchoQueue::begin(PlanPosition position) {
  stop();
  next_ = ahead_ = 0;
  Replay replay(plan_, 1, std::move(position));
  view_.begin(plan_);
  return replay;
}

void EchoQueue::resume(const Replay& replay) {
  feed_.reset(replay);
  view_.publish(plan_);
}

}  // namespace pyecho
