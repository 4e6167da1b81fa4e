// Clocks of the two ends of a stage: its source and its consumer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho {

// Splits a consumer's time into waiting for pyecho and downstream work.
//
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
    sum.store_relaxed(sum.load_relaxed() + ns_of(span));
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

// Estimates how long a source takes for an item when it runs freely, although it may make items ahead by itself.
//
// The time inside next() is that time only while the reader always comes back at once. A source that prefetches works
// on while the reader waits for room, and then hands out at no cost what it has made. The time for an item is
//
// - at least the mean time inside next();
// - at most the mean time from one item to the next, waits for room included, because the source kept up with that;
// - in between, the mean time inside next() before the reader waited for the first time.
//
// The first item after begin() counts in neither mean, because it includes the start of the source.
//
// Not thread-safe, but for blocked().
class SourceClock {
 public:
  // Call before the first read of a reader.
  void begin() noexcept { first_ = true; }
  // The source was called from `from` to `to`. `item`: it made an item; otherwise it began or ended a pass.
  void read(Clock::time_point from, Clock::time_point to, bool item) noexcept {
    const std::uint64_t inside = ns_of(to - from);
    inside_ns_ += inside;
    items_ += item ? 1 : 0;
    if (!first_) {
      counted_ += item ? 1 : 0;
      counted_inside_ns_ += inside;
      elapsed_ns_ += ns_of(to - last_);
      if (!blocked_.load_relaxed()) {
        free_ += item ? 1 : 0;
        free_ns_ += inside;
      }
    }
    first_ = first_ && !item;
    last_ = to;
  }
  // A source has worked for so long on these items, waits for room left out.
  void worked(std::uint64_t ns, std::uint64_t items) noexcept {
    inside_ns_ += ns;
    counted_inside_ns_ += ns;
    elapsed_ns_ += ns;
    items_ += items;
    counted_ += items;
  }
  // The reader is about to wait for room, or to do something else than reading. Any thread.
  void blocked() noexcept { blocked_.store_relaxed(true); }

  // Returns the time inside the source.
  [[nodiscard]] std::uint64_t inside_ns() const noexcept { return inside_ns_; }
  // Returns the estimated time that a free source takes for all items; 0 while nothing is known.
  [[nodiscard]] std::uint64_t upstream_ns() const noexcept {
    if (counted_ == 0) {
      return 0;
    }
    const auto mean = [](std::uint64_t sum, std::uint64_t items) {
      return items == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(items);
    };
    const double least = mean(counted_inside_ns_, counted_);
    const double most = std::max(least, mean(elapsed_ns_, counted_));
    const double item_ns = std::clamp(mean(free_ns_, free_), least, most);
    return static_cast<std::uint64_t>(item_ns * static_cast<double>(items_));
  }

 private:
  bool first_ = true;
  Atomic<bool> blocked_;
  Clock::time_point last_{};  // the end of the last read
  std::uint64_t inside_ns_ = 0;
  std::uint64_t items_ = 0;
  std::uint64_t counted_ = 0;  // items but the first of each reader; the next two are their times
  std::uint64_t counted_inside_ns_ = 0;
  std::uint64_t elapsed_ns_ = 0;
  std::uint64_t free_ = 0;  // of those, the items before the reader waited for the first time
  std::uint64_t free_ns_ = 0;
};

}  // namespace pyecho
