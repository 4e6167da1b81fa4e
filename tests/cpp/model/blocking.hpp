// A mutex and a condition variable for the model, used through std::unique_lock and std::scoped_lock like the standard
// ones.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "scheduler.hpp"

namespace pyecho::model {

class Mutex {
 public:
  void lock() {
    Scheduler& scheduler = *Scheduler::current();
    scheduler.step();
    while (owner_ != kNoThread && !scheduler.aborted()) {
      waiting_.push_back(scheduler.thread());
      scheduler.sleep();
    }
    owner_ = scheduler.thread();
    scheduler.clock().join(released_);
  }
  void unlock() {
    Scheduler& scheduler = *Scheduler::current();
    scheduler.step();
    released_.join(scheduler.clock());
    owner_ = kNoThread;
    for (const int thread : waiting_) {
      scheduler.wake(thread);
    }
    waiting_.clear();
  }

 private:
  int owner_ = kNoThread;
  std::vector<int> waiting_;
  VectorClock released_;
};

// Waits end by notify_one() and notify_all() or by their deadline, never spuriously. A wait that no thread can end throws Aborted.
class Condition {
 public:
  template <class Lockable>
  void wait(std::unique_lock<Lockable>& lock) {
    begin(lock);
    while (is_asleep() && !scheduler().aborted()) {
      scheduler().sleep();
    }
    end(lock);
  }

  // Ignores the value of the deadline: it passes at any time, or never. If it passes, the wait has timed out, notified
  // or not, because standard libraries check the clock when they return.
  template <class Lockable, class Deadline>
  std::cv_status wait_until(std::unique_lock<Lockable>& lock, const Deadline&) {
    if (scheduler().choose(2) == 0) {
      wait(lock);
      return std::cv_status::no_timeout;
    }
    begin(lock);
    scheduler().pause();
    end(lock);
    return std::cv_status::timeout;
  }

  void notify_all() {
    scheduler().step();
    for (int thread = 0; thread < kMaxThreads; ++thread) {
      if (std::exchange(asleep_[static_cast<std::size_t>(thread)], false)) {
        scheduler().wake(thread);
      }
    }
  }
  // Wakes any one of the threads that sleep.
  void notify_one() {
    scheduler().step();
    const auto asleep = static_cast<std::uint32_t>(std::ranges::count(asleep_, true));
    std::uint32_t others = asleep == 0 ? 0 : scheduler().choose(asleep);
    for (int thread = 0; asleep > 0; ++thread) {
      if (asleep_[static_cast<std::size_t>(thread)] && others-- == 0) {
        asleep_[static_cast<std::size_t>(thread)] = false;
        return scheduler().wake(thread);
      }
    }
  }

 private:
  static Scheduler& scheduler() { return *Scheduler::current(); }
  [[nodiscard]] bool& is_asleep() { return asleep_[static_cast<std::size_t>(scheduler().thread())]; }

  template <class Lockable>
  void begin(std::unique_lock<Lockable>& lock) {
    scheduler().step();  // others may notify before this step, and this thread misses it
    is_asleep() = true;
    lock.unlock();
  }
  template <class Lockable>
  void end(std::unique_lock<Lockable>& lock) {
    lock.lock();
    is_asleep() = false;
    if (scheduler().aborted()) {
      throw Aborted{};
    }
  }

  std::array<bool, kMaxThreads> asleep_{};
};
static_assert(std::is_trivially_destructible_v<Condition>);  // EventCount does not destroy its condition

}  // namespace pyecho::model
