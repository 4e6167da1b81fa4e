// All that the stand-in knows: one object, never destroyed, guarded by one mutex; and the threshold that every driver
// call crosses.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "config.hpp"
#include "core/plan/random.hpp"
#include "functions.hpp"
#include "memory.hpp"
#include "standin.h"
#include "streams.hpp"

namespace pyecho::standin {

inline constexpr Result kNotPermitted = 800;
inline constexpr Result kStreamCaptureIsolation = 905;

struct Capture {
  bool active = false;
  bool invalidated = false;
  std::uint64_t number = 0;
  std::thread::id thread{};
  std::shared_ptr<Stream> stream{};  // null: none that the stand-in knows
};

struct Counters {
  std::uint64_t calls = 0;
  std::array<std::uint64_t, kFunctionCount> calls_of{};
  std::uint64_t copied_bytes = 0;
  std::uint64_t unpinned_copies = 0;
  std::uint64_t violations = 0;
  std::string last_violation;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;  // whenever an operation is finished, and by wake_all()

  Config config;
  Xoshiro256 random{0};  // of standin_step()
  Counters counters;
  Capture capture;

  bool initialized = false;
  bool deinitialized = false;
  bool exiting = false;
  bool forked = false;  // after cuInit, and this is the child
  Result fault = kSuccess;

  int hold = STANDIN_RUN;
  bool hurried = false;              // streams execute without delays
  std::uint64_t copies_running = 0;  // of streams, and in callers

  std::uint64_t generation = 1;  // advanced by a reset; see ThreadState
  std::uint64_t last_handle = 0;
  std::uint64_t last_capture = 0;
  std::map<StreamHandle, std::shared_ptr<Stream>> streams;  // the destroyed ones until they are done
  std::map<EventHandle, Event> events;
  std::map<DeviceHandle, std::uint64_t> context_retains;
  Memory memory;
};

State& the_state();

// Of each thread. Needs no destructor: calls still come in when those of a thread have run.
struct ThreadState {
  static constexpr int kMaxContexts = 64;

  std::uint64_t generation = 0;  // all below is void if it is not the state's
  std::array<DeviceHandle, kMaxContexts> contexts{};
  int context_count = 0;
  int capture_mode = 0;
  bool in_host_function = false;
};

ThreadState& this_thread(const State& state);

// A handle that was never used before.
template <class Handle>
Handle new_handle(State& state) {
  return reinterpret_cast<Handle>(std::uintptr_t{0x1000} + 16 * ++state.last_handle);
}

void record_violation(State& state, std::string what);
[[nodiscard]] bool is_captured(const State& state, const std::shared_ptr<Stream>& stream);
// The answer to a call that is not allowed while `stream` is captured, or that gives it work then.
Result invalidate_capture(State& state, Result answer);
Result capture_work(const State& state);
void seed_random(State& state);
// See standin_deinitialize().
void deinitialize(State& state, Lock& lock);

// Blocks until done(), or answers why that will not come to pass.
template <class Done>
Result wait_until(State& state, Lock& lock, const Done& done) {
  for (;;) {
    if (state.deinitialized) {
      return kDeinitialized;
    }
    if (state.fault != kSuccess) {
      return state.fault;
    }
    if (done()) {
      return kSuccess;
    }
    if (state.hold != STANDIN_STEP || !step(state, lock)) {
      state.changed.wait(lock);
    }
  }
}

// What a driver function needs; each includes the ones before.
enum class Needs : unsigned char {
  kNothingUncounted,  // a look-up
  kNothing,
  kProcess,  // not at its end, not forked
  kInit,
  kContext,
  kNoCapture,
};

// Counts the call. Answers kSuccess if it may go on.
Result admit(State& state, FunctionId function, Needs needs);

// A driver function: `body(state, lock)`, if it is admitted.
template <class Body>
Result call(FunctionId function, Needs needs, const Body& body) {
  State& state = the_state();
  Lock lock(state.mutex);
  const Result refusal = admit(state, function, needs);
  return refusal != kSuccess ? refusal : body(state, lock);
}

}  // namespace pyecho::standin
