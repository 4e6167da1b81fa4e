#include "state.hpp"

#include <utility>

namespace pyecho::standin {
namespace {

void count_call(State& state, FunctionId function, Needs needs) {
  ++state.counters.calls_of[function.index()];
  if (needs != Needs::kNothingUncounted) {
    ++state.counters.calls;
  }
}

// kSuccess unless this is the call that was chosen to fail.
Result injected_failure(State& state, FunctionId function, Needs needs) {
  std::optional<Failure>& failure = state.config.failure;
  if (!failure) {
    return kSuccess;
  }
  const bool meant =
      failure->function.empty() ? needs != Needs::kNothingUncounted : failure->function == function.name();
  if (!meant || --failure->calls_left > 0) {
    return kSuccess;
  }
  const Result result = failure->result;
  if (failure->sticky) {
    state.fault = result;
    wake_all(state);
  }
  failure.reset();
  return result;
}

bool prohibited_by_capture(const State& state) {
  if (!state.capture.active) {
    return false;
  }
  constexpr int kGlobal = 0;
  const int mode = this_thread(state).capture_mode;
  return mode == kGlobal || (mode != kCaptureModeRelaxed && state.capture.thread == std::this_thread::get_id());
}

}  // namespace

State& the_state() {
  // Leaked: threads and calls may come after everything has been destroyed.
  static State* const state = [] {
    auto* const fresh = new State;
    fresh->config = config_from_environment();
    seed_random(*fresh);
    return fresh;
  }();
  return *state;
}

ThreadState& this_thread(const State& state) {
  static thread_local ThreadState thread;
  if (thread.generation != state.generation) {
    thread = ThreadState{};
    thread.generation = state.generation;
  }
  return thread;
}

void record_violation(State& state, std::string what) {
  ++state.counters.violations;
  state.counters.last_violation = std::move(what);
}

bool is_captured(const State& state, const std::shared_ptr<Stream>& stream) {
  return state.capture.active && state.capture.stream == stream;
}

Result invalidate_capture(State& state, Result answer) {
  state.capture.invalidated = true;
  return answer;
}

Result capture_work(const State& state) { return state.capture.invalidated ? kStreamCaptureInvalidated : kSuccess; }

void seed_random(State& state) {
  state.random = Xoshiro256(mix64(state.config.seed));
  for (const auto& [handle, stream] : state.streams) {
    seed_stream(state, *stream);
  }
}

void deinitialize(State& state, Lock& lock) {
  state.deinitialized = true;
  wake_all(state);
  state.changed.wait(lock, [&] { return state.copies_running == 0; });
}

Result admit(State& state, FunctionId function, Needs needs) {
  count_call(state, function, needs);
  if (needs >= Needs::kProcess) {
    if (state.forked) {
      return kNotInitialized;
    }
    if (state.deinitialized) {
      return kDeinitialized;
    }
    if (state.fault != kSuccess) {
      return state.fault;
    }
  }
  if (const Result result = injected_failure(state, function, needs); result != kSuccess) {
    return result;
  }
  if (needs >= Needs::kInit && !state.initialized) {
    return kNotInitialized;
  }
  if (needs >= Needs::kInit && this_thread(state).in_host_function) {
    record_violation(state, std::string(function.name()) + " was called in a host function");
    return kNotPermitted;
  }
  if (needs >= Needs::kNoCapture && prohibited_by_capture(state)) {
    return invalidate_capture(state, kStreamCaptureUnsupported);
  }
  if (needs >= Needs::kContext && this_thread(state).context_count == 0) {
    return kInvalidContext;
  }
  return kSuccess;
}

}  // namespace pyecho::standin
