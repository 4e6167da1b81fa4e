#include "core/stage/executor.hpp"

#include <utility>

#include "core/stage/feed.hpp"

namespace pyecho {

void Executor::begin(std::uint64_t epoch, std::uint64_t items) {
  if (open_ != nullptr) {
    batches_.give_back(std::exchange(open_, nullptr), false);
  }
  batches_.forget_refusal();
  plan_.begin(epoch, items);
  slots_.reset();
  reclaimer_.reset(planned_);
  finished_.store_relaxed(false);
  resident_.store_relaxed(0);
}

// Draws rows of the open batch: kOk when it is complete, or kEmpty, kEnd, kExhausted.
Outcome Executor::draw() {
  if (open_ == nullptr) {
    if (const Outcome outcome = plan_.ready(); outcome != Outcome::kOk) {
      return outcome;  // finds the end of the iteration before a block is needed
    }
    open_ = batches_.obtain();
    if (open_ == nullptr) {
      return Outcome::kExhausted;
    }
    open_->number = planned_;
  }
  std::uint32_t drawn = 0;
  const Outcome outcome = plan_.draw(open_->missing(), drawn);
  open_->rows += drawn;
  return outcome == Outcome::kEnd ? Outcome::kOk : outcome;  // the end completes the batch, which may be short
}

Outcome Executor::plan(Batch*& batch) {
  for (;;) {
    if (finished() || slots_.stopped()) {
      return Outcome::kClosed;
    }
    feed(slots_, plan_);
    const Outcome outcome = draw();
    resident_.store_relaxed(plan_.resident());
    switch (outcome) {
      case Outcome::kOk:
        batch = std::exchange(open_, nullptr);
        ++planned_;
        plan_.end_batch();
        return outcome;
      case Outcome::kEnd:
        plan_.next_iteration();
        finished_.store_relaxed(plan_.finished());
        return outcome;
      case Outcome::kEmpty:
        if (feed(slots_, plan_) || (open_ != nullptr && builder_.copy(*open_))) {
          continue;
        }
        return outcome;
      default:
        return outcome;
    }
  }
}

}  // namespace pyecho
