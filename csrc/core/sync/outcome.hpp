// The results of a hand-over operation. Hot paths return one of these; they never throw.
#pragma once

#include <chrono>
#include <cstdint>

namespace pyecho {

enum class [[nodiscard]] Outcome : unsigned char {
  kOk,         // done
  kFull,       // no room now; nothing changed
  kEmpty,      // nothing available now; nothing changed
  kTimeout,    // the deadline passed first; nothing changed
  kHalted,     // the stage is halted, while a state is taken; nothing changed
  kClosed,     // no more input is accepted, or the stage was stopped; nothing changed
  kEnd,        // the end of an iteration
  kExhausted,  // the consumer holds every batch that the memory limit allows
  kForked,     // this process is a fork of the one that made the object; its threads stayed there
};

// The text of a std::bad_alloc for users.
inline constexpr const char* kNoMemory = "the system has no more memory; lower shuffle_buffer, batch_size or prefetch";

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline constexpr Deadline kNever = Deadline::max();

[[nodiscard]] constexpr std::uint64_t ns_of(Clock::duration span) noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(span).count());
}

}  // namespace pyecho
