#include <cstdint>
#include <cstdio>
#include <utility>

#include "driver.hpp"
#include "state.hpp"

namespace pyecho::standin {
namespace {

// A context is the primary one of its device, whose number is in the handle.
constexpr std::uintptr_t kFirstContext = 0x100;

ContextHandle context_of(DeviceHandle device) {
  return reinterpret_cast<ContextHandle>(kFirstContext + static_cast<std::uintptr_t>(device));
}

bool exists(const State& state, DeviceHandle device) { return device >= 0 && device < state.config.devices; }

}  // namespace

Result init(unsigned flags) {
  return call("cuInit", Needs::kProcess, [&](State& state, Lock&) -> Result {
    if (flags != 0) {
      return kInvalidValue;
    }
    if (state.config.init_result != kSuccess) {
      return state.config.init_result;
    }
    if (state.config.devices == 0) {
      return kNoDevice;
    }
    state.initialized = true;
    return kSuccess;
  });
}

Result driver_get_version(int* version) {
  return call("cuDriverGetVersion", Needs::kNothing, [&](State& state, Lock&) -> Result {
    if (version == nullptr) {
      return kInvalidValue;
    }
    *version = state.config.version;
    return kSuccess;
  });
}

Result device_get_count(int* count) {
  return call("cuDeviceGetCount", Needs::kInit, [&](State& state, Lock&) -> Result {
    if (count == nullptr) {
      return kInvalidValue;
    }
    *count = state.config.devices;
    return kSuccess;
  });
}

Result device_get(DeviceHandle* device, int ordinal) {
  return call("cuDeviceGet", Needs::kInit, [&](State& state, Lock&) -> Result {
    if (device == nullptr) {
      return kInvalidValue;
    }
    if (!exists(state, ordinal)) {
      return kInvalidDevice;
    }
    *device = ordinal;
    return kSuccess;
  });
}

Result device_get_name(char* name, int size, DeviceHandle device) {
  return call("cuDeviceGetName", Needs::kInit, [&](State& state, Lock&) -> Result {
    if (name == nullptr || size <= 0) {
      return kInvalidValue;
    }
    if (!exists(state, device)) {
      return kInvalidDevice;
    }
    std::snprintf(name, static_cast<std::size_t>(size), "Stand-in GPU %d", device);
    return kSuccess;
  });
}

Result device_get_attribute(int* value, int attribute, DeviceHandle device) {
  return call("cuDeviceGetAttribute", Needs::kInit, [&](State& state, Lock&) -> Result {
    if (value == nullptr || attribute != kAttributeHostNumaId) {
      return kInvalidValue;
    }
    if (!exists(state, device)) {
      return kInvalidDevice;
    }
    *value = state.config.numa_node;
    return kSuccess;
  });
}

Result primary_context_retain(ContextHandle* context, DeviceHandle device) {
  return call("cuDevicePrimaryCtxRetain", Needs::kInit, [&](State& state, Lock&) -> Result {
    if (context == nullptr) {
      return kInvalidValue;
    }
    if (!exists(state, device)) {
      return kInvalidDevice;
    }
    ++state.context_retains[device];
    *context = context_of(device);
    return kSuccess;
  });
}

Result primary_context_get_state(DeviceHandle device, unsigned* flags, int* active) {
  return call("cuDevicePrimaryCtxGetState", Needs::kInit, [&](State& state, Lock&) -> Result {
    if (flags == nullptr || active == nullptr) {
      return kInvalidValue;
    }
    if (!exists(state, device)) {
      return kInvalidDevice;
    }
    *flags = 0;
    *active = state.context_retains.contains(device) ? 1 : 0;
    return kSuccess;
  });
}

Result context_push(ContextHandle context) {
  return call("cuCtxPushCurrent", Needs::kInit, [&](State& state, Lock&) -> Result {
    for (const auto& [device, retains] : state.context_retains) {
      if (context == context_of(device)) {
        ThreadState& thread = this_thread(state);
        if (thread.context_count == ThreadState::kMaxContexts) {
          record_violation(state, "cuCtxPushCurrent: contexts are pushed and never popped");
          return kOutOfMemory;
        }
        thread.contexts[static_cast<std::size_t>(thread.context_count++)] = device;
        return kSuccess;
      }
    }
    return kInvalidContext;
  });
}

Result context_pop(ContextHandle* context) {
  return call("cuCtxPopCurrent", Needs::kInit, [&](State& state, Lock&) -> Result {
    ThreadState& thread = this_thread(state);
    if (thread.context_count == 0) {
      return kInvalidContext;
    }
    const DeviceHandle device = thread.contexts[static_cast<std::size_t>(--thread.context_count)];
    if (context != nullptr) {
      *context = context_of(device);
    }
    return kSuccess;
  });
}

Result thread_exchange_capture_mode(int* mode) {
  return call("cuThreadExchangeStreamCaptureMode", Needs::kInit, [&](State& state, Lock&) -> Result {
    if (mode == nullptr || *mode < 0 || *mode > kCaptureModeRelaxed) {
      return kInvalidValue;
    }
    std::swap(*mode, this_thread(state).capture_mode);
    return kSuccess;
  });
}

}  // namespace pyecho::standin
