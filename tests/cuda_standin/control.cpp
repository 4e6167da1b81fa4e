#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "standin.h"
#include "state.hpp"

using namespace pyecho::standin;

namespace {

// For all but the reading functions: changes nothing in a forked child, where nothing works any more.
template <class Body>
void change(const Body& body) {
  State& state = the_state();
  Lock lock(state.mutex);
  if (!state.forked) {
    body(state, lock);
  }
}

template <class Body>
std::uint64_t read(const Body& body) {
  State& state = the_state();
  const Lock lock(state.mutex);
  return body(state);
}

// What a reset and a restoration have in common.
void start_over(State& state, Lock& lock) {
  settle(state, lock);
  state.config = config_from_environment();
  seed_random(state);
  state.counters = Counters{};
  state.capture = Capture{};
  state.fault = pyecho::cuda::kSuccess;
}

}  // namespace

// ---------------------------------------------------------------- configuration

void standin_set_version(int version) {
  change([&](State& state, Lock&) { state.config.version = version; });
}

void standin_set_hidden(const char* names) {
  change([&](State& state, Lock&) { state.config.hidden = split_names(names); });
}

void standin_set_devices(int count) {
  change([&](State& state, Lock&) { state.config.devices = count; });
}

void standin_set_init_result(int result) {
  change([&](State& state, Lock&) { state.config.init_result = result; });
}

void standin_set_numa_node(int node) {
  change([&](State& state, Lock&) { state.config.numa_node = node; });
}

void standin_set_register_limit(std::uint64_t bytes) {
  change([&](State& state, Lock&) { state.config.register_limit = bytes; });
}

void standin_set_seed(std::uint64_t seed) {
  change([&](State& state, Lock&) {
    state.config.seed = seed;
    seed_random(state);
  });
}

void standin_set_max_delay_us(unsigned microseconds) {
  change([&](State& state, Lock&) { state.config.max_delay_us = microseconds; });
}

// ---------------------------------------------------------------- failures

void standin_fail_call(const char* name, std::uint64_t nth, int result, int sticky) {
  change([&](State& state, Lock&) {
    state.config.failure.reset();
    if (nth > 0) {
      state.config.failure =
          Failure{.function = name == nullptr ? "" : name, .calls_left = nth, .result = result, .sticky = sticky != 0};
    }
  });
}

void standin_fault(int result) {
  change([&](State& state, Lock&) {
    state.fault = result;
    wake_all(state);
  });
}

void standin_deinitialize(void) {
  change([](State& state, Lock& lock) { deinitialize(state, lock); });
}

// ---------------------------------------------------------------- execution

void standin_hold(int hold) {
  change([&](State& state, Lock& lock) {
    state.hold = hold;
    wake_all(state);
    if (hold != STANDIN_RUN) {
      state.changed.wait(lock, [&] { return state.copies_running == 0; });
    }
  });
}

int standin_step(void) {
  bool stepped = false;
  change([&](State& state, Lock& lock) { stepped = state.hold != STANDIN_RUN && step(state, lock); });
  return stepped ? 1 : 0;
}

int standin_drain(void) {
  int result = pyecho::cuda::kSuccess;
  change([&](State& state, Lock& lock) {
    while (state.hold != STANDIN_RUN && step(state, lock)) {
    }
    result = wait_until(state, lock, [&] { return pending_operations(state) == 0; });
  });
  return result;
}

// ---------------------------------------------------------------- stream capture

void standin_begin_capture(void) {
  change([](State& state, Lock&) {
    state.capture = Capture{.active = true, .number = ++state.last_capture, .thread = std::this_thread::get_id()};
  });
}

int standin_begin_capture_of(void* stream) {
  Result result = pyecho::cuda::kSuccess;
  change([&](State& state, Lock&) {
    auto found = find_stream(state, static_cast<StreamHandle>(stream));
    if (found == nullptr) {
      result = pyecho::cuda::kInvalidHandle;
    } else if (found == find_stream(state, nullptr)) {
      result = pyecho::cuda::kStreamCaptureUnsupported;
    } else {
      state.capture = Capture{.active = true,
                              .number = ++state.last_capture,
                              .thread = std::this_thread::get_id(),
                              .stream = std::move(found)};
    }
  });
  return result;
}

int standin_end_capture(void) {
  bool invalidated = false;
  change([&](State& state, Lock&) {
    invalidated = state.capture.invalidated;
    state.capture = Capture{};
  });
  return invalidated ? pyecho::cuda::kStreamCaptureInvalidated : pyecho::cuda::kSuccess;
}

// ---------------------------------------------------------------- what has happened

std::uint64_t standin_calls(void) {
  return read([](State& state) { return state.counters.calls; });
}

std::uint64_t standin_calls_of(const char* name) {
  const std::size_t index = index_of(name);
  return read([&](State& state) { return index == kFunctionCount ? 0 : state.counters.calls_of[index]; });
}

std::uint64_t standin_copied_bytes(void) {
  return read([](State& state) { return state.counters.copied_bytes; });
}

std::uint64_t standin_unpinned_copies(void) {
  return read([](State& state) { return state.counters.unpinned_copies; });
}

std::uint64_t standin_violations(void) {
  return read([](State& state) { return state.counters.violations; });
}

const char* standin_last_violation(void) {
  static thread_local std::array<char, 256> text{};
  read([](State& state) {
    std::snprintf(text.data(), text.size(), "%s", state.counters.last_violation.c_str());
    return std::uint64_t{0};
  });
  return text.data();
}

std::uint64_t standin_pending(void) {
  return read([](State& state) { return pending_operations(state); });
}

std::uint64_t standin_live_streams(void) {
  return read([](State& state) {
    return static_cast<std::uint64_t>(std::count_if(state.streams.begin(), state.streams.end(), [](const auto& entry) {
      return entry.first != nullptr && !entry.second->destroyed;
    }));
  });
}

std::uint64_t standin_live_events(void) {
  return read([](State& state) { return state.events.size(); });
}

std::uint64_t standin_registered_ranges(void) {
  return read([](State& state) { return state.memory.registered.count(); });
}

std::uint64_t standin_registered_bytes(void) {
  return read([](State& state) { return state.memory.registered.size_bytes(); });
}

std::uint64_t standin_device_allocations(void) {
  return read([](State& state) { return state.memory.allocated.size(); });
}

std::uint64_t standin_retained_contexts(void) {
  return read([](State& state) { return state.context_retains.size(); });
}

std::uint64_t standin_context_retains(int device) {
  return read([&](State& state) {
    const auto found = state.context_retains.find(device);
    return found == state.context_retains.end() ? 0 : found->second;
  });
}

// ---------------------------------------------------------------- between tests

void standin_reset(void) {
  change([](State& state, Lock& lock) {
    start_over(state, lock);
    for (const auto& [handle, stream] : state.streams) {
      stream->destroyed = true;  // which ends its thread
      stream->wake.notify_one();
    }
    state.streams.clear();
    state.events.clear();
    state.context_retains.clear();
    state.memory = Memory{};
    state.initialized = false;
    state.deinitialized = state.exiting;
    ++state.generation;  // no thread has a context or a capture mode any more
  });
}

void standin_restore(void) {
  change([](State& state, Lock& lock) { start_over(state, lock); });
}
