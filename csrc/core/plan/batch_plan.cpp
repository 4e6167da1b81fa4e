#include "core/plan/batch_plan.hpp"

namespace pyecho {
namespace {

PlannerConfig with_slots(PlannerConfig config, std::uint32_t batch_rows) {
  config.slots = BatchPlan::slots_for(config.capacity, batch_rows);
  return config;
}

}  // namespace

BatchPlan::BatchPlan(PlannerConfig config, std::uint32_t batch_rows, bool drop_last)
    : planner_(with_slots(config, batch_rows)), batch_rows_(batch_rows), drop_last_(drop_last) {
  const std::uint32_t slots = slots_for(config.capacity, batch_rows);
  free_.reserve(slots);
  spent_.reserve(batch_rows);
  admitted_.reserve(slots);
  uses_.reserve(batch_rows);
  for (std::uint32_t slot = slots; slot > 0; --slot) {
    free_.push_back(slot - 1);  // so that slot 0 is the first to be taken
  }
}

Outcome BatchPlan::advance() {
  for (;;) {
    if (!begun_) {
      planner_.begin_batch();
      begun_ = true;
    }
    Use use{};
    while (uses_.size() < batch_rows_) {
      if (!admit()) {
        return Outcome::kEmpty;
      }
      if (!planner_.draw(use)) {
        break;
      }
      uses_.push_back(use);
      if (use.last) {
        spent_.push_back(use.slot);
      }
    }
    if (uses_.size() == batch_rows_ || (!uses_.empty() && !drop_last_)) {
      return Outcome::kOk;
    }
    if (planner_.exhausted()) {
      return Outcome::kEnd;
    }
    // A short batch that is dropped. The source has ended, so no store can hit a slot of its rows any more, while the
    // stores that it has asked for may matter to the batches after it.
    uses_.clear();
    begun_ = false;
  }
}

// Fills the pool as far as it has to be for the next draw; false if the examples for it are not there.
bool BatchPlan::admit() {
  while (planner_.has_room()) {
    if (offered_ == 0 && ended_) {
      planner_.end_of_source();
    } else if (offered_ == 0) {
      return false;
    } else {
      --offered_;
      planner_.admit(free_.back());
      admitted_.push_back(free_.back());
      free_.pop_back();
    }
  }
  return true;
}

void BatchPlan::take() {
  free_.insert(free_.end(), spent_.begin(), spent_.end());
  spent_.clear();
  admitted_.clear();
  uses_.clear();
  begun_ = false;
}

}  // namespace pyecho
