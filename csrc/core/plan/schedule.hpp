// How much of their inputs several ranks take before which batch, as far as they have agreed on it.
//
// Knots say how many events of the input (items, then the end) are to be taken before a batch. They are taken evenly over the
// batches up to it: an equal part of what is left, rounded up, before each. So a part is a function of what was taken so far,
// which is the same on every rank. Behind the last knot, the horizon, nothing is decided yet.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pyecho {

struct Knot {
  std::uint64_t batch;   // before this one `events` are taken; kEver: as soon as there is room
  std::uint64_t events;  // since begin()

  static constexpr std::uint64_t kEver = std::uint64_t{1} << 62;  // which is the horizon then

  friend bool operator==(const Knot&, const Knot&) = default;
};

class Schedule {
 public:
  void clear() { knots_.clear(); }
  // Adds knots at later and later batches.
  void extend(std::span<const Knot> knots) { knots_.insert(knots_.end(), knots.begin(), knots.end()); }
  // Returns how many events are to be taken before a batch if `taken` were taken before earlier ones. Nothing: that is not
  // decided yet. Drops the knots that are behind, but for the last one.
  [[nodiscard]] std::optional<std::uint64_t> due(std::uint64_t batch, std::uint64_t taken) {
    while (knots_.size() > 1 && knots_.front().batch <= batch) {
      knots_.erase(knots_.begin());
    }
    if (knots_.empty() || knots_.front().batch <= batch) {
      return std::nullopt;
    }
    const auto [end, events] = knots_.front();
    const std::uint64_t left = events - std::min(taken, events);
    return end == Knot::kEver ? left : left / (end - batch) + (left % (end - batch) != 0 ? 1 : 0);
  }
  // Returns the last knot, if there is one, and those that are not behind.
  [[nodiscard]] const std::vector<Knot>& knots() const noexcept { return knots_; }

 private:
  std::vector<Knot> knots_;
};

}  // namespace pyecho
