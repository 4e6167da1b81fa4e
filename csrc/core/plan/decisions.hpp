// The decisions of an adaptive factor.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace pyecho {

// For each batch the number of events (items, ends of passes) taken before it.
using Decisions = std::vector<std::uint32_t>;

// By the first epoch of passes that flow into each other.
using DecisionLog = std::map<std::uint64_t, Decisions>;

// Of a plan that has diverged from the decisions to take again.
inline constexpr const char* kOtherLog =
    "the log is not that of this run: the pool cannot take as many items before a batch as the log says; replay needs "
    "the source, the options, the seed and the epochs of the run that made the log";

}  // namespace pyecho
