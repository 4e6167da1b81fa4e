// Calls into Python, and native work and waits without the GIL.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/section.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho::bindings {

// Shorter copies keep the GIL, because releasing and retaking it costs more, and a busy consumer may keep it for long.
inline constexpr std::size_t kGilFreeBytes = std::size_t{32} << 10;

// Maximum time of a wait between runs of signal handlers (Ctrl-C).
inline constexpr std::chrono::milliseconds kSignalSlice{50};

// Python ends a daemon thread that requests the GIL while the interpreter finalizes. Before Python 3.14 it unwinds the
// thread's stack, which would run destructors that need the GIL. The destructor of this object, which that unwinding
// reaches first, parks the thread instead, as 3.14 does.
class ParkIfKilled {
 public:
  ParkIfKilled() = default;
  ParkIfKilled(const ParkIfKilled&) = delete;
  ParkIfKilled& operator=(const ParkIfKilled&) = delete;
  ~ParkIfKilled() {
    while (!passed_ && std::uncaught_exceptions() == exceptions_) {
      pause();
    }
  }
  // Call when the call into Python has returned.
  void passed() noexcept { passed_ = true; }

 private:
  bool passed_ = false;
  const int exceptions_ = std::uncaught_exceptions();
};

// Releases the GIL if `wanted`. The destructor does not retake it, because a finalizing interpreter may end the thread
// there; call take_back().
class GilRelease {
 public:
  explicit GilRelease(bool wanted) : wanted_(wanted) { release(); }
  void release() { state_ = wanted_ ? PyEval_SaveThread() : nullptr; }
  void take_back() {
    if (state_ != nullptr) {
      ParkIfKilled park;
      PyEval_RestoreThread(std::exchange(state_, nullptr));
      park.passed();
    }
  }

 private:
  bool wanted_;
  PyThreadState* state_ = nullptr;
};

// Calls `call`, which calls into Python, and returns its result. Gives up the Sections of the thread meanwhile.
template <class Call>
auto call_python(const Call& call) {
#ifdef Py_GIL_DISABLED
  const OutOfSections out;
  GilRelease(true).take_back();
#endif
  ParkIfKilled park;
  auto result = call();
  park.passed();
  return result;
}

// Returns what `call`, which needs no Python, returns; without the GIL if that is wanted.
template <class Call>
auto without_gil(bool wanted, const Call& call) {
  GilRelease gil(wanted);
  try {
    auto result = call();
    gil.take_back();
    return result;
  } catch (...) {
    gil.take_back();
    throw;
  }
}

// Returns the deadline for a timeout in seconds from now; none means forever. Raises ConfigError for nan.
inline Deadline deadline_after(std::optional<double> timeout_s) {
  if (!timeout_s) {
    return kNever;
  }
  if (std::isnan(*timeout_s)) {
    raise(errors().config_error, "timeout must be a number of seconds or None, got nan");
  }
  constexpr double kForeverSeconds = 1e9;
  const std::chrono::duration<double> timeout(std::clamp(*timeout_s, 0.0, kForeverSeconds));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
}

// Calls `attempt(deadline of a slice)` without the GIL until it returns something other than kTimeout, `deadline` has
// passed, or `give_up()`, called with the GIL, is true. Throws error_already_set if a signal handler raised. If this
// function throws, no attempt has succeeded.
template <class Attempt, class GiveUp>
Outcome wait_answering_signals(Deadline deadline, const Attempt& attempt, const GiveUp& give_up) {
  for (;;) {
    throw_if(PyErr_CheckSignals() != 0);  // also at the start, so that many short waits do not lock out Ctrl-C
    const Deadline now = Clock::now();
    const Deadline slice = deadline - now > kSignalSlice ? now + kSignalSlice : deadline;
    const Outcome outcome = without_gil(true, [&] { return attempt(slice); });
    if (outcome != Outcome::kTimeout || Clock::now() >= deadline || give_up()) {
      return outcome;
    }
  }
}

}  // namespace pyecho::bindings
