#include "core/stage/echo_queue.hpp"

namespace pyecho {

EchoQueue::EchoQueue(const EchoQueueConfig& config)
    : pool_(config.capacity + config.prefetch, 1),
      planner_({.capacity = config.capacity,
                .slots = pool_.slots(),
                .factor = config.factor,
                .seed = config.seed,
                .epoch = config.epoch,
                .unique_in_batch = false}) {}

Outcome EchoQueue::reserve(Reservation& reservation, Deadline deadline) {
  return fork_guard_.forked() ? Outcome::kForked : pool_.reserve(reservation, deadline);
}

Outcome EchoQueue::try_reserve(Reservation& reservation) {
  return fork_guard_.forked() ? Outcome::kForked : pool_.try_reserve(reservation);
}

// Fills the planner's pool as far as it has to be for the next draw.
Outcome EchoQueue::admit() {
  clock_.enter();
  while (planner_.has_room()) {
    std::uint32_t slot = 0;
    const Outcome outcome = pool_.try_take(slot);
    if (outcome == Outcome::kOk) {
      planner_.admit(slot);
    } else if (outcome == Outcome::kEnd) {
      planner_.end_of_source();
    } else {
      return outcome;
    }
  }
  resident_.store_relaxed(planner_.resident());
  clock_.leave();
  return Outcome::kOk;
}

Outcome EchoQueue::try_next(Use& use) {
  if (fork_guard_.forked()) {
    return Outcome::kForked;
  }
  if (pool_.stopped()) {
    return Outcome::kClosed;
  }
  if (planner_.has_room()) {
    if (const Outcome outcome = admit(); outcome != Outcome::kOk) {
      return outcome;
    }
  }
  if (!planner_.draw(use)) {
    clock_.enter();  // what the consumer did with the last uses counts as well
    return Outcome::kEnd;
  }
  if (use.last) {
    resident_.store_relaxed(planner_.resident());
  }
  emitted_.store_relaxed(emitted_.load_relaxed() + 1);
  return Outcome::kOk;
}

Outcome EchoQueue::next(Use& use, Deadline deadline) {
  for (;;) {
    if (const Outcome outcome = try_next(use); outcome != Outcome::kEmpty) {
      return outcome;
    }
    const Outcome outcome = pool_.await_items(planner_.min_admissions(1), deadline);
    if (outcome == Outcome::kTimeout) {
      const Outcome last = try_next(use);
      return last == Outcome::kEmpty ? Outcome::kTimeout : last;
    }
  }
}

EchoQueueStats EchoQueue::stats() const {
  return {.fresh = pool_.committed(),
          .emitted = emitted_.load_relaxed(),
          .consumer_wait_ns = clock_.wait_ns(),
          .downstream_ns = clock_.downstream_ns(),
          .resident = resident_.load_relaxed()};
}

}  // namespace pyecho
