// The decisions of an adaptive factor.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

namespace pyecho {

// For each batch the number of events (items, ends of passes) taken before it.
using Decisions = std::vector<std::uint32_t>;

// A segment of any run.
struct SegmentName {
  std::uint64_t epoch = 0;  // the first of passes that flow into each other
  std::uint64_t pass = 0;   // in which it begins; the first one is `epoch`
  std::uint64_t parts = 0;  // see Segment
  auto operator<=>(const SegmentName&) const = default;
};

using DecisionLog = std::map<SegmentName, Decisions>;

// Of a plan that has diverged from the decisions to take again.
inline constexpr const char* kOtherLog =
    "the log is not that of this run: the pool cannot take as many items before a batch as the log says; replay needs "
    "the source, the options, the seed and the epochs of the run that made the log";

}  // namespace pyecho
