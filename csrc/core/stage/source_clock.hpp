// Estimates how long a source takes for an item when it runs freely, although it may make items ahead by itself.
//
// The time inside next() is that time only while the reader always comes back at once. A source that prefetches works
// on while the reader waits for room, and then hands out at no cost what it has made. What is known of the time for an
// item:
//
// - at least the mean time inside next();
// - at most the mean time from one item to the next, waits for room included, because the source kept up with that;
// - in between, the mean time inside next() before the reader waited for the first time.
//
// The first item after begin() counts in neither mean, because it includes the start of the source.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

// Not thread-safe, but for blocked().
class SourceClock {
 public:
  // Call before the first read of a reader.
  void begin() noexcept { first_ = true; }
  // The source was called from `from` to `to`. `item`: it made an item; otherwise it began or ended a pass.
  void read(Clock::time_point from, Clock::time_point to, bool item) noexcept {
    const std::uint64_t inside = ns(to - from);
    inside_ns_ += inside;
    items_ += item ? 1 : 0;
    if (!first_) {
      counted_ += item ? 1 : 0;
      counted_inside_ns_ += inside;
      elapsed_ns_ += ns(to - last_);
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
  static std::uint64_t ns(Clock::duration span) noexcept {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(span).count());
  }

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
