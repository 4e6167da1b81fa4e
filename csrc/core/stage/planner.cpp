#include "core/stage/planner.hpp"

#include <new>
#include <utility>

#include "core/trace/recorder.hpp"

namespace pyecho {

Replay Planner::begin(PlanPosition position) {
  if (open_ != nullptr) {
    batches_.give_back(std::exchange(open_, nullptr), false);
  }
  batches_.forget_refusal();
  gather_.begin(planned_);
  iteration_ = position.epoch;
  uses_ = 0;
  Replay replay(plan_, rows_, std::move(position));
  view_.begin(plan_);
  return replay;
}

void Planner::resume(const Replay& replay) {
  iteration_ = replay.plan().epoch() + replay.iterations();
  uses_ = replay.uses_drawn();
  view_.publish(plan_);
}

const Plan& Planner::settle(std::vector<const Batch*>& batches) {
  const Plan& plan = fed_plan();
  if (open_ != nullptr) {
    gather_.copy_planned(*open_);
    batches.push_back(open_);
  }
  return plan;
}

// Draws rows of the open batch: kOk when it is complete, or kEmpty, kEnd, kExhausted.
Outcome Planner::draw(bool awaited) {
  if (open_ == nullptr) {
    const Outcome outcome = plan_.ready(awaited);
    plan_.take_left([&](std::span<const std::uint32_t> slots) { gather_.leave(planned_, slots); });
    if (outcome != Outcome::kOk) {
      return outcome;  // finds the end of the iteration before a block is needed
    }
    open_ = batches_.obtain();
    if (open_ == nullptr) {
      return Outcome::kExhausted;
    }
    open_->number = planned_;
    open_->epoch = iteration_;
    open_->begin = uses_;
  }
  std::uint32_t drawn = 0;
  const Outcome outcome = plan_.draw(open_->missing(), drawn, awaited);
  open_->rows += drawn;
  return outcome == Outcome::kEnd ? Outcome::kOk : outcome;  // the end completes the batch, which may be short
}

Outcome Planner::next(Batch*& batch, bool awaited, bool alone) {
  trace::Span span(trace::Kind::kPlan);
  for (;;) {
    if (plan_.finished() || slots_.quiet()) {
      span.cancel();
      return Outcome::kClosed;
    }
    feed_.drain_into(plan_);
    const Outcome outcome = draw(awaited);
    view_.publish(plan_);
    trace::record_fill(this, view_.resident());
    switch (outcome) {
      case Outcome::kOk:
        batch = std::exchange(open_, nullptr);
        ++planned_;
        uses_ += batch->rows;
        span.set_value(batch->rows);
        plan_.end_batch();
        return outcome;
      case Outcome::kEnd:
        plan_.next_iteration();
        ++iteration_;
        uses_ = 0;
        batches_.end_epoch();
        return outcome;
      case Outcome::kEmpty:
        // Looks once more, because copying here holds up the plan.
        if (feed_.drain_into(plan_) || (alone && copy_open())) {
          continue;
        }
        return outcome;
      default:
        return outcome;
    }
  }
}

// Copies the planned rows of the open batch, which may free slots. Returns false if there are none, or no memory for
// them: copy() tries again, and only rows of which slots stay filled need memory.
bool Planner::copy_open() {
  try {
    return open_ != nullptr && gather_.copy_planned(*open_);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace pyecho
