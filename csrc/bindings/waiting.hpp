// Native waits for Python: they release the GIL and run signal handlers.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <exception>
#include <optional>

#include "bindings/errors.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho::bindings {

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

// Retakes the GIL.
inline void take_gil(PyThreadState* state) {
  ParkIfKilled park;
  PyEval_RestoreThread(state);
  park.passed();
}

// Calls `call`, which calls into Python, and returns its result.
template <class Call>
auto call_python(const Call& call) {
  ParkIfKilled park;
  auto result = call();
  park.passed();
  return result;
}

// Returns the deadline for a timeout in seconds from now; none means forever. Raises ConfigError for nan.
inline Deadline deadline_after(std::optional<double> timeout_s) {
  constexpr double kForeverSeconds = 1e9;
  if (timeout_s && std::isnan(*timeout_s)) {
    raise(errors().config_error, "timeout must be a number of seconds or None, got nan");
  }
  if (timeout_s && *timeout_s <= 0) {
    return Clock::now();
  }
  if (!timeout_s || *timeout_s > kForeverSeconds) {
    return kNever;
  }
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*timeout_s));
}

// Calls `attempt(deadline of a slice)` without the GIL until it returns something other than kTimeout, `deadline` has
// passed, or `give_up()`, called with the GIL, is true. Throws error_already_set if a signal handler raised. If this
// function throws, no attempt has succeeded.
template <class Attempt, class GiveUp>
Outcome wait_answering_signals(Deadline deadline, const Attempt& attempt, const GiveUp& give_up) {
  for (;;) {
    if (PyErr_CheckSignals() != 0) {  // also at the start, so that many short waits do not lock out Ctrl-C
      throw pybind11::error_already_set();
    }
    const Deadline now = Clock::now();
    const Deadline slice = deadline - now > kSignalSlice ? now + kSignalSlice : deadline;
    PyThreadState* const state = PyEval_SaveThread();
    Outcome outcome{};
    try {
      outcome = attempt(slice);
    } catch (...) {
      take_gil(state);
      throw;
    }
    take_gil(state);
    if (outcome != Outcome::kTimeout) {
      return outcome;
    }
    if (slice == deadline || give_up()) {
      return Outcome::kTimeout;
    }
  }
}

template <class Attempt>
Outcome wait_answering_signals(Deadline deadline, const Attempt& attempt) {
  return wait_answering_signals(deadline, attempt, [] { return false; });
}

}  // namespace pyecho::bindings
