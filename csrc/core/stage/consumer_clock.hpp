// Splits a consumer's time into waiting for pyecho and downstream work.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

// Call enter() when the consumer requests a batch (or use) and leave() when it gets one, both in the consuming thread
// (one at a time). A second enter() before leave() counts as the same request. Any thread may read the sums.
class ConsumerClock {
 public:
  void enter() noexcept {
    if (inside_) {
      return;
    }
    inside_ = true;
    const Clock::time_point now = Clock::now();
    if (left_ != Clock::time_point{}) {
      add(downstream_ns_, now - left_);
    }
    entered_ = now;
  }
  void leave() noexcept {
    inside_ = false;
    left_ = Clock::now();
    add(wait_ns_, left_ - entered_);
  }

  [[nodiscard]] std::uint64_t wait_ns() const noexcept { return wait_ns_.load_relaxed(); }
  [[nodiscard]] std::uint64_t downstream_ns() const noexcept { return downstream_ns_.load_relaxed(); }

 private:
  static void add(Atomic<std::uint64_t>& sum, Clock::duration span) noexcept {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
    sum.store_relaxed(sum.load_relaxed() + static_cast<std::uint64_t>(ns));
  }

  bool inside_ = false;
  Clock::time_point entered_{};
  Clock::time_point left_{};  // zero before the first leave()
  Atomic<std::uint64_t> wait_ns_;
  Atomic<std::uint64_t> downstream_ns_;
};

}  // namespace pyecho
