// A counter that threads can sleep on (the eventcount of Reed and Kanodia, 1979: advance, read, await).
//
// advance() counts events; await() returns once the count has reached a target. Every wait in pyecho has this form:
// "until 17 slots have been freed", "until batch 4 has been taken". Each sleeper names its target, so advance() wakes
// no thread before a target is reached. While no thread sleeps, it costs one read-modify-write and one load.
//
// The hand-shake. A sleeper lowers wake_at_ to its target and then reads the count with a read-modify-write. advance()
// adds to the count with a read-modify-write and then loads wake_at_. Read-modify-writes of one word have a single
// order. If the sleeper's comes later, it sees the new count. If advance()'s comes later, it reads from the sleeper's
// and therefore sees wake_at_. So no wake-up is lost, no fence is needed, and TSan can check it all.
//
// variable | written by          | read by         | order              | pairs with | why
// count_   | advance [E1]        | await [E4]      | acq_rel RMW        | E1 <-> E4  | see the hand-shake; also makes writes
//          |                     | read [E5]       | acquire            | E1 -> E5   | before advance visible after await or read
// wake_at_ | await [E3], alert   | advance [E2]    | relaxed            | by count_  | ordered by E1 <-> E4; writers hold mutex_
//
// A condition that is not a count (closed, stopped) is passed to await() as `interrupted`, which is evaluated under the
// mutex. A thread that changes such a condition must call alert() afterwards.
//
// `Atom`, `Mutex` and `Condition` are the standard ones in the product. The model tests put a scheduler behind them and
// run the same code in chosen orders.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <thread>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pyecho {

// Steps of a wait: `spins` checks, some nanoseconds apart, then `yields` checks with a yield after each, then sleep. A
// hand-over that is about to happen needs no system call. Where threads share too few processors, yielding lets the
// other side proceed. A long wait costs some tens of microseconds of processor time once, then nothing. Where other
// programs keep the processors busy, a yield costs a whole time slice, so EventCount then stops yielding for a while.
struct WaitStrategy {
  std::uint32_t spins;
  std::uint32_t yields;

  // For hand-overs that are usually imminent. On a single processor spinning is useless.
  [[nodiscard]] static WaitStrategy spin_then_sleep() noexcept {
    static const bool alone = std::thread::hardware_concurrency() < 2;
    return {.spins = alone ? 0U : 32U, .yields = 64U};
  }
  [[nodiscard]] static constexpr WaitStrategy sleep() noexcept { return {.spins = 0, .yields = 0}; }
};

// Tells the processor that this is a spin loop.
inline void relax_processor() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

template <template <class> class Atom = std::atomic, class Mutex = std::mutex,
          class Condition = std::condition_variable>
class BasicEventCount {
 public:
  BasicEventCount() : wakened_() {}
  ~BasicEventCount() {}
  BasicEventCount(const BasicEventCount&) = delete;
  BasicEventCount& operator=(const BasicEventCount&) = delete;

  // Counts `events` (0 does nothing). Any thread. Blocks only to wake a sleeper whose target is reached.
  void advance(std::uint64_t events = 1) {
    if (events == 0) {
      return;
    }
    const std::uint64_t now = count_.fetch_add_acq_rel(events) + events;  // [E1] pairs with [E4], [E5]
    if (wake_at_.load_relaxed() <= now) {                                 // [E2] sees [E3], by E4 -> E1
      alert();
    }
  }

  // Returns the count so far. Any thread, wait-free.
  [[nodiscard]] std::uint64_t read() const noexcept { return count_.load_acquire(); }  // [E5] pairs with [E1]

  // Wakes every sleeper, to evaluate its `interrupted` again. Each registers its target again if it must continue to
  // sleep. Any thread.
  void alert() {
    {
      const std::scoped_lock lock(mutex_);
      wake_at_.store_relaxed(kNobody);
    }
    wakened_.notify_all();
  }

  // Blocks until the count is at least `target` (kOk), `interrupted()` is true (kEmpty) or the deadline has passed
  // (kTimeout). `interrupted` is called with the mutex held and must not call back into this object.
  template <class Interrupted>
  Outcome await(std::uint64_t target, Deadline deadline, WaitStrategy strategy, const Interrupted& interrupted) {
    if (look_for(target, strategy)) {
      return Outcome::kOk;
    }
    std::unique_lock lock(mutex_);
    for (;;) {
      if (target < wake_at_.load_relaxed()) {
        wake_at_.store_relaxed(target);  // [E3]
      }
      if (count_.fetch_add_acq_rel(0) >= target) {  // [E4] pairs with [E1]
        return Outcome::kOk;
      }
      if (interrupted()) {
        return Outcome::kEmpty;
      }
      if (deadline == kNever) {
        wakened_.wait(lock);
      } else if (wakened_.wait_until(lock, deadline) == std::cv_status::timeout) {
        return read() >= target ? Outcome::kOk : Outcome::kTimeout;
      }
    }
  }

 private:
  // A yield that takes this long has let another program run, and the next yields probably would as well.
  static constexpr std::chrono::microseconds kSlowYield{50};
  // Number of waits after a slow yield that go to sleep without yielding.
  static constexpr std::uint32_t kWaitsWithoutYield = 256;

  // Spins and yields before sleep. Returns true if the target was reached.
  bool look_for(std::uint64_t target, WaitStrategy strategy) noexcept {
    for (std::uint32_t spin = 0; spin < strategy.spins; ++spin) {
      if (read() >= target) {
        return true;
      }
      relax_processor();
    }
    if (const std::uint32_t left = waits_without_yield_.load_relaxed(); left > 0 && strategy.yields > 0) {
      waits_without_yield_.store_relaxed(left - 1);
      return false;
    }
    for (std::uint32_t look = 0; look < strategy.yields; ++look) {
      if (read() >= target) {
        return true;
      }
      const Clock::time_point before = Clock::now();
      std::this_thread::yield();
      if (Clock::now() - before > kSlowYield) {
        waits_without_yield_.store_relaxed(kWaitsWithoutYield);
        break;
      }
    }
    return false;
  }

  static constexpr std::uint64_t kNobody = std::numeric_limits<std::uint64_t>::max();

  Sequence<Atom> count_;             // advanced by any thread
  Sequence<Atom> wake_at_{kNobody};  // the lowest target of any sleeper; lowered by sleepers and reset by wakers, both
                                     // under mutex_
  Atomic<std::uint32_t, Atom> waits_without_yield_;  // set and counted down by waiting threads; a heuristic, relaxed
  Mutex mutex_;
  // Never destroyed, because destroying a std::condition_variable waits for its sleepers to leave, and in a forked
  // child they stayed in the parent. A Condition must hold no resources beyond its own bytes.
  union {
    Condition wakened_;  // NOLINT(readability-identifier-naming): a private member, in a union
  };
};

using EventCount = BasicEventCount<>;

}  // namespace pyecho
