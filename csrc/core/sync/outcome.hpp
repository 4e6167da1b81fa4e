// What a hand-over operation can answer. Hot paths return one of these; they never throw.
#pragma once

#include <chrono>

namespace pyecho {

enum class [[nodiscard]] Outcome : unsigned char {
  kOk,         // done
  kFull,       // no room now; nothing changed
  kEmpty,      // nothing there now; nothing changed
  kTimeout,    // the deadline passed first; nothing changed
  kClosed,     // no more input is taken; nothing changed
  kEnd,        // closed and drained: nothing will ever come again
  kExhausted,  // every batch the memory limit allows is held by the consumer
  kForked,     // this process is a fork of the one that made the object; its threads stayed there
};

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline constexpr Deadline kNever = Deadline::max();

}  // namespace pyecho
