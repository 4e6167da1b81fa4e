// The driver functions, as declared in csrc/cuda/driver_api.hpp and extra_api.hpp. They follow NVIDIA's documentation
// of the functions of the same name, with the exceptions that standin.h tells.
#pragma once

#include "config.hpp"
#include "extra_api.hpp"

namespace pyecho::standin {

// driver_errors.cpp
Result get_error_name(Result result, const char** name);
Result get_error_string(Result result, const char** text);

// driver_devices.cpp
Result init(unsigned flags);
Result driver_get_version(int* version);
Result device_get_count(int* count);
Result device_get(DeviceHandle* device, int ordinal);
Result device_get_name(char* name, int size, DeviceHandle device);
Result device_get_attribute(int* value, int attribute, DeviceHandle device);
Result primary_context_retain(ContextHandle* context, DeviceHandle device);
Result primary_context_get_state(DeviceHandle device, unsigned* flags, int* active);
Result context_push(ContextHandle context);
Result context_pop(ContextHandle* context);
Result thread_exchange_capture_mode(int* mode);

// driver_streams.cpp
Result stream_create(StreamHandle* stream, unsigned flags);
Result stream_destroy(StreamHandle stream);
Result stream_query(StreamHandle stream);
Result stream_synchronize(StreamHandle stream);
Result stream_is_capturing(StreamHandle stream, int* status);
Result stream_wait_event(StreamHandle stream, EventHandle event, unsigned flags);
Result launch_host_function(StreamHandle stream, HostFunctionPointer function, void* argument);
Result event_create(EventHandle* event, unsigned flags);
Result event_destroy(EventHandle event);
Result event_record(EventHandle event, StreamHandle stream);
Result event_query(EventHandle event);
Result event_synchronize(EventHandle event);

// driver_memory.cpp
Result memory_host_register(void* data, std::size_t size_bytes, unsigned flags);
Result memory_host_unregister(void* data);
Result pointer_get_attribute(void* value, int attribute, DevicePointer pointer);
Result memory_allocate(DevicePointer* pointer, std::size_t size_bytes);
Result memory_free(DevicePointer pointer);
Result memory_copy_to_device_async(DevicePointer to, const void* from, std::size_t size_bytes, StreamHandle stream);
Result memory_copy_to_host_async(void* to, DevicePointer from, std::size_t size_bytes, StreamHandle stream);

}  // namespace pyecho::standin
