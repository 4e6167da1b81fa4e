// A mutex that a thread looks at before it tries to take it. A try that fails writes nothing, so threads that look again
// and again do not take the line from the one that has it.
//
// held_: written by the thread that has the turn, read by those that try; relaxed, a hint. The mutex carries the order.
#pragma once

#include <mutex>

#include "core/sync/atomic.hpp"

namespace pyecho {

// For std::unique_lock.
class alignas(kCacheLineBytes) Turn {
 public:
  [[nodiscard]] bool held() const noexcept { return held_.load_relaxed(); }
  bool try_lock() noexcept {
    if (held() || !mutex_.try_lock()) {
      return false;
    }
    held_.store_relaxed(true);
    return true;
  }
  void lock() {
    mutex_.lock();
    held_.store_relaxed(true);
  }
  void unlock() noexcept {
    held_.store_relaxed(false);
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  Atomic<bool> held_;
};

}  // namespace pyecho
