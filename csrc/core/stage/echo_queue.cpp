#include "core/stage/echo_queue.hpp"

#include <algorithm>
#include <utility>

namespace pyecho {

EchoQueue::EchoQueue(const EchoQueueConfig& config)
    : pool_(config.capacity + std::max(1U, config.prefetch), config.prefetch),
      plan_({.capacity = config.capacity,
             .slots = pool_.slots(),
             .factor = config.factor,
             .seed = config.seed,
             .iteration_uses = config.steps,
             .min_uses = config.min_uses,
             .max_age = config.max_age,
             .replay = config.replay}),
      ahead_most_(config.min_uses > 0 ? 1 : kUsesAhead) {
  plan_.begin(config.epoch, config.items);
}

Outcome EchoQueue::plan(Use& use) {
  if (pool_.forked()) {
    return Outcome::kForked;
  }
  if (pool_.stopped()) {
    return Outcome::kClosed;
  }
  clock_.enter();
  if (at_end()) {
    return Outcome::kEnd;
  }
  pool_.feed(plan_);
  next_ = 0;
  const Outcome outcome = plan_.draw(std::span(uses_).first(ahead_most_), ahead_);
  plan_.take_left([this](std::span<const std::uint32_t> slots) { pool_.release(slots); });
  if (ahead_ > 0) {
    plan_.end_batch();
    clock_.leave();
    use = uses_[next_++];
    emitted_.store_relaxed(emitted_.load_relaxed() + 1);
    return Outcome::kOk;
  }
  if (outcome == Outcome::kEnd) {
    plan_.next_iteration();
  }
  pool_.announce_released();  // this thread leaves the stage, or waits
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
    late = await_items(deadline) == Outcome::kTimeout || pool_.halted();
  }
}

Outcome EchoQueue::begin(std::uint64_t epoch, std::uint64_t items) {
  if (pool_.forked()) {
    return Outcome::kForked;
  }
  pool_.stop();
  pool_.reset();
  plan_.begin(epoch, items);
  next_ = ahead_ = 0;
  return Outcome::kOk;
}

Replay EchoQueue::begin_at(PlanPosition position) {
  pool_.stop();
  next_ = ahead_ = 0;
  return {plan_, 1, std::move(position)};
}

EchoQueueStats EchoQueue::stats() const {
  return {.fresh = pool_.committed(),
          .emitted = emitted_.load_relaxed(),
          .consumer_wait_ns = clock_.wait_ns(),
          .downstream_ns = clock_.downstream_ns(),
          .resident = plan_.resident()};
}

}  // namespace pyecho
