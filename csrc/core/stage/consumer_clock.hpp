// Splits a consumer's time into waiting for pyecho and downstream work.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho {

// Call enter() when the consumer requests a batch (or use) and leave() when it gets one, both in the consuming thread
// (one at a time). A second enter() before leave() counts as the same request. Any thread may read the sums.
//
// Both spans are recorded for a trace if they begin and end in the same thread, and if that is not one of pyecho's own.
class ConsumerClock {
 public:
  void enter() noexcept {
    if (inside_) {
      return;
    }
    inside_ = true;
    entered_ = Clock::now();
    if (left_ != Clock::time_point{}) {
      add(downstream_ns_, entered_ - left_);
    }
    trace(trace::Kind::kStep, left_, entered_);
  }
  void leave() noexcept {
    inside_ = false;
    left_ = Clock::now();
    add(wait_ns_, left_ - entered_);
    trace(trace::Kind::kWait, entered_, left_);
  }
  // Instead of leave(): the iteration is over. The time until the next enter() counts as neither.
  void end_iteration() noexcept {
    leave();
    left_ = {};
  }

  [[nodiscard]] std::uint64_t wait_ns() const noexcept { return wait_ns_.load_relaxed(); }
  [[nodiscard]] std::uint64_t downstream_ns() const noexcept { return downstream_ns_.load_relaxed(); }

 private:
  static void add(Atomic<std::uint64_t>& sum, Clock::duration span) noexcept {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
    sum.store_relaxed(sum.load_relaxed() + static_cast<std::uint64_t>(ns));
  }
  void trace(trace::Kind kind, Clock::time_point from, Clock::time_point to) noexcept {
    if (!trace::recording()) [[likely]] {
      return;
    }
    const std::thread::id self = std::this_thread::get_id();
    if (std::exchange(traced_, self) == self && !trace::thread_has_name()) {
      trace::record(kind, trace::to_ns(from), trace::to_ns(to), 0);
    }
  }

  bool inside_ = false;
  Clock::time_point entered_{};
  Clock::time_point left_{};  // zero before the first leave(), and between iterations
  std::thread::id traced_{};  // the last thread that called trace() while something was recorded
  Atomic<std::uint64_t> wait_ns_;
  Atomic<std::uint64_t> downstream_ns_;
};

}  // namespace pyecho
