// The one function that is found by dlsym(), and the table from which it gives out all others.
#include <cstddef>
#include <cstring>

#include "driver.hpp"
#include "state.hpp"

extern "C" STANDIN_API int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                               int* symbol_status);

namespace pyecho::standin {
namespace {

// That each has the type of its place is checked here.
constexpr DriverApi kApi{
    .init = &init,
    .driver_get_version = &driver_get_version,
    .get_error_name = &get_error_name,
    .get_error_string = &get_error_string,
    .device_get_count = &device_get_count,
    .device_get = &device_get,
    .device_get_name = &device_get_name,
    .device_get_attribute = &device_get_attribute,
    .primary_context_retain = &primary_context_retain,
    .primary_context_get_state = &primary_context_get_state,
    .context_push = &context_push,
    .context_pop = &context_pop,
    .stream_create = &stream_create,
    .stream_destroy = &stream_destroy,
    .stream_query = &stream_query,
    .stream_synchronize = &stream_synchronize,
    .stream_is_capturing = &stream_is_capturing,
    .stream_wait_event = &stream_wait_event,
    .event_create = &event_create,
    .event_destroy = &event_destroy,
    .event_record = &event_record,
    .event_query = &event_query,
    .event_synchronize = &event_synchronize,
    .memory_host_register = &memory_host_register,
    .memory_host_unregister = &memory_host_unregister,
    .pointer_get_attribute = &pointer_get_attribute,
    .memory_copy_to_device_async = &memory_copy_to_device_async,
    .thread_exchange_capture_mode = &thread_exchange_capture_mode,
};

constexpr ExtraApi kExtraApi{
    .memory_allocate = &memory_allocate,
    .memory_free = &memory_free,
    .memory_copy_to_host_async = &memory_copy_to_host_async,
    .launch_host_function = &launch_host_function,
    .get_proc_address = &cuGetProcAddress_v2,
};

constexpr std::uint64_t kPerThreadStream = 2;  // not offered
constexpr int kSymbolNotFound = 1;

void* function_at(std::size_t index) {
  const bool extra = index >= std::size(kSymbols);
  const void* const table = extra ? static_cast<const void*>(&kExtraApi) : &kApi;
  void* function = nullptr;
  std::memcpy(&function, static_cast<const std::byte*>(table) + symbol_at(index).offset, sizeof(function));
  return function;
}

Result look_up(const State& state, const char* name, void** function, int version, std::uint64_t flags, int& status) {
  if (name == nullptr || function == nullptr || flags >= kPerThreadStream) {
    return kInvalidValue;
  }
  *function = nullptr;
  if (version > state.config.version) {
    return kInvalidValue;
  }
  const std::size_t index = index_of(name);
  if (index == kFunctionCount || state.config.hidden.contains(name)) {
    status = kSymbolNotFound;
    return kNotFound;
  }
  if (version < symbol_at(index).version) {
    status = kSymbolNeedsNewerDriver;
    return kSuccess;
  }
  *function = function_at(index);
  status = kSymbolFound;
  return kSuccess;
}

}  // namespace
}  // namespace pyecho::standin

int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags, int* symbol_status) {
  using namespace pyecho::standin;
  return call("cuGetProcAddress", Needs::kNothingUncounted, [&](State& state, Lock&) {
    int unused = 0;
    return look_up(state, name, function, version, flags, symbol_status == nullptr ? unused : *symbol_status);
  });
}
