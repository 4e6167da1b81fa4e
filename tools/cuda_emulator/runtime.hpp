// Shared by the functions of the runtime API.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "emulator.hpp"

using namespace emulator;  // NOLINT: of two files that implement an API in the global namespace

inline thread_local int last_error = 0;

template <class Body>
cudaError_t runtime(const char* function, Body body, bool passive = false) {
  const int code = call(function, passive, [&](Lock& lock) {
    machine().in_use = true;
    body(lock);
  });
  if (code != 0 && code != kNotReady) last_error = code;
  return static_cast<cudaError_t>(code);
}

// The device whose context is current; a thread begins with the first one's.
inline int current_device() { return contexts.empty() ? 0 : contexts.back(); }

inline int checked(int device) {
  if (device < 0 || static_cast<size_t>(device) >= machine().devices.size()) throw Failure{kInvalidDevice};
  return device;
}

inline void set_device(int device) {
  use_context(device);
  if (contexts.empty()) contexts.push_back(device);
  contexts.back() = device;
}

// The current device, for calls that make its context.
inline int used_device() {
  set_device(current_device());
  return current_device();
}

inline Stream& stream_of(cudaStream_t stream) { return emulator::stream_of(stream, used_device()); }
inline Graph& graph_of(void* graph) { return *static_cast<Graph*>(graph); }

// A function of the API with this statement as its body; it holds the machine's mutex by `lock`.
#define CALL(statement) return runtime(__func__, [&]([[maybe_unused]] Lock& lock) { statement; })
#define PASSIVE_CALL(statement) return runtime(__func__, [&](Lock&) { statement; }, true)
