// Feeding a plan with the items of a slot pool.
#pragma once

#include <cstdint>
#include <span>

#include "core/memory/slot_pool.hpp"
#include "core/plan/batch_plan.hpp"

namespace pyecho {

// Feeds the plan everything that producers have committed. Returns false if there was nothing. The planner's thread.
inline bool feed(SlotPool& pool, BatchPlan& plan) {
  for (bool fed = false;; fed = true) {
    std::span<const std::uint32_t> slots;
    switch (pool.take(slots)) {
      case SlotPool::Taken::kItems:
        plan.feed(slots);
        break;
      case SlotPool::Taken::kPassEnd:
        plan.end_pass();
        break;
      case SlotPool::Taken::kEnd:
        return plan.end_input() || fed;
      case SlotPool::Taken::kNothing:
        return fed;
    }
  }
}

}  // namespace pyecho
