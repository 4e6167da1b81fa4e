#include "core/stage/echo_queue.hpp"

#include <algorithm>

#include "core/stage/feed.hpp"

namespace pyecho {
namespace {

// Same as in EchoBuffer: a producer without a slot is woken once 1 / kAnnounceParts of the slots ahead are free.
constexpr std::uint32_t kAnnounceParts = 4;

}  // namespace

EchoQueue::EchoQueue(const EchoQueueConfig& config)
    : pool_(config.capacity + std::max(1U, config.prefetch), std::max(1U, config.prefetch / kAnnounceParts)),
      plan_({.capacity = config.capacity,
             .slots = pool_.slots(),
             .factor = config.factor,
             .seed = config.seed,
             .iteration_uses = config.steps}) {
  plan_.begin(config.epoch, config.items);
}

// ---------------------------------------------------------------- producers

Outcome EchoQueue::reserve(Reservation& reservation, Deadline deadline) {
  return fork_guard_.forked() ? Outcome::kForked : pool_.reserve(reservation, deadline);
}

Outcome EchoQueue::try_reserve(Reservation& reservation) {
  return fork_guard_.forked() ? Outcome::kForked : pool_.try_reserve(reservation);
}

void EchoQueue::commit(Reservation reservation) {
  if (!fork_guard_.forked()) {
    pool_.commit(reservation);
  }
}

void EchoQueue::abort(Reservation reservation) {
  if (!fork_guard_.forked()) {
    pool_.abort(reservation);
  }
}

void EchoQueue::end_pass(Reservation reservation) {
  if (!fork_guard_.forked()) {
    pool_.end_pass(reservation);
  }
}

void EchoQueue::close() {
  if (!fork_guard_.forked()) {
    pool_.close();
  }
}

// ---------------------------------------------------------------- consumer

Outcome EchoQueue::plan(Use& use) {
  if (fork_guard_.forked()) {
    return Outcome::kForked;
  }
  if (pool_.stopped()) {
    return Outcome::kClosed;
  }
  clock_.enter();
  if (at_end()) {
    return Outcome::kEnd;
  }
  feed(pool_, plan_);
  next_ = 0;
  const Outcome outcome = plan_.draw(uses_, ahead_);
  resident_.store_relaxed(plan_.resident());
  if (ahead_ > 0) {
    clock_.leave();
    use = uses_[next_++];
    emitted_.store_relaxed(emitted_.load_relaxed() + 1);
    return Outcome::kOk;
  }
  if (outcome == Outcome::kEnd) {
    plan_.next_iteration();
    finished_.store_relaxed(plan_.finished());
  }
  pool_.announce_released();  // this thread leaves the stage, or waits
  return outcome;
}

Outcome EchoQueue::next(Use& use, Deadline deadline) {
  for (;;) {
    if (const Outcome outcome = try_next(use); outcome != Outcome::kEmpty) {
      return outcome;
    }
    if (await_items(deadline) == Outcome::kTimeout) {
      const Outcome last = try_next(use);
      return last == Outcome::kEmpty ? Outcome::kTimeout : last;
    }
  }
}

Outcome EchoQueue::begin(std::uint64_t epoch, std::uint64_t items) {
  if (fork_guard_.forked()) {
    return Outcome::kForked;
  }
  pool_.stop();
  pool_.reset();
  plan_.begin(epoch, items);
  next_ = ahead_ = 0;
  finished_.store_relaxed(false);
  resident_.store_relaxed(0);
  return Outcome::kOk;
}

// ---------------------------------------------------------------- any thread

void EchoQueue::stop() {
  if (!fork_guard_.forked()) {
    pool_.stop();
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
