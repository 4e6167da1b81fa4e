// Facts of a plan for any thread: copies that the planning thread publishes after each step.
//
// variable   | written by     | read by           | order   | why
// resident_  | begin, publish | resident()        | relaxed | a statistic
// diverged_  | begin, publish | diverged()        | relaxed | the draws are wrong from then on, whenever that is noticed
// log_       | begin, publish | log()             | mutex_  | not read in a forked child, where a thread of the parent may hold it
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "core/plan/plan.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/fork_guard.hpp"

namespace pyecho {

class PlanView {
 public:
  // The plan has begun. The planning thread.
  void begin(const Plan& plan) {
    {
      const std::scoped_lock lock(mutex_);
      std::erase_if(log_, [&](const auto& of_segment) { return of_segment.first.epoch == plan.epoch(); });
    }
    publish(plan);
  }
  // The plan has gone on. The planning thread.
  void publish(const Plan& plan) {
    resident_.store_relaxed(plan.resident());
    if (plan.config().adaptive()) {
      diverged_.store_relaxed(plan.diverged());
      const std::scoped_lock lock(mutex_);
      plan.each_log([&](const SegmentName& segment, const Decisions& decisions) {
        if (decisions.empty() && segment.pass == segment.epoch && segment.parts == 0) {
          return false;
        }
        Decisions& known = log_[segment];
        const std::size_t before = known.size();
        known.insert(known.end(), decisions.begin() + static_cast<std::ptrdiff_t>(before), decisions.end());
        return decisions.empty() || known.size() > before;  // else earlier ones are known
      });
    }
  }

  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_.load_relaxed(); }
  [[nodiscard]] bool diverged() const noexcept { return diverged_.load_relaxed(); }
  // Returns the decisions since each begin(); nothing in a forked child.
  [[nodiscard]] DecisionLog log() const {
    if (fork_guard_.forked()) {
      return {};
    }
    const std::scoped_lock lock(mutex_);
    return log_;
  }

 private:
  const ForkGuard fork_guard_;
  Atomic<std::uint32_t> resident_;
  Atomic<bool> diverged_;
  mutable std::mutex mutex_;
  DecisionLog log_;  // guarded by mutex_
};

}  // namespace pyecho
