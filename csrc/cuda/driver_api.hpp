// The part of the CUDA driver's C interface that pyecho calls, declared by hand, so that building needs no CUDA header and
// nothing links against CUDA. Names, versions and values follow NVIDIA's published driver API; tests/gpu checks the
// values against cuda.h where a toolkit is installed.
//
// Each symbol is requested with the version in which its present form appeared, never a newer one, because a driver
// refuses versions above its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyecho::cuda {

// ---------------------------------------------------------------- types, with the sizes of the ABI

using Result = int;                   // CUresult
using DeviceHandle = int;             // CUdevice
using DevicePointer = std::uint64_t;  // CUdeviceptr
using ContextHandle = struct Context_st*;
using StreamHandle = struct Stream_st*;
using EventHandle = struct Event_st*;

static_assert(sizeof(Result) == 4 && sizeof(DeviceHandle) == 4 && sizeof(DevicePointer) == 8);

// ---------------------------------------------------------------- values

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kStubLibrary = 34;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kHostMemoryAlreadyRegistered = 712;
inline constexpr Result kHostMemoryNotRegistered = 713;
inline constexpr Result kStreamCaptureUnsupported = 900;
inline constexpr Result kStreamCaptureInvalidated = 901;
inline constexpr Result kCapturedEvent = 907;

inline constexpr unsigned kStreamNonBlocking = 1;     // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventBlockingSync = 1;     // CU_EVENT_BLOCKING_SYNC
inline constexpr unsigned kEventDisableTiming = 2;    // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kHostRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kLaunchDefault = 0;         // of cuStreamWaitEvent
inline constexpr int kAttributeHostNumaId = 134;      // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
inline constexpr int kPointerMemoryType = 2;          // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
inline constexpr unsigned kMemoryTypeHost = 1;        // CU_MEMORYTYPE_HOST
inline constexpr int kCaptureModeRelaxed = 2;         // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr int kCaptureStatusNone = 0;          // CU_STREAM_CAPTURE_STATUS_NONE
// Plain stream handles mean the legacy default stream, as they do in PyTorch.
inline constexpr std::uint64_t kProcAddressLegacyStream = 1;  // CU_GET_PROC_ADDRESS_LEGACY_STREAM
inline constexpr int kSymbolFound = 0;                        // CU_GET_PROC_ADDRESS_SUCCESS
inline constexpr int kSymbolNeedsNewerDriver = 2;             // CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT

// ---------------------------------------------------------------- functions

// cuGetProcAddress_v2, the only symbol looked up by dlsym(). Drivers of CUDA 12.0 and newer have it.
using GetProcAddress = Result (*)(const char* name, void** function, int version, std::uint64_t flags,
                                  int* symbol_status);

// Any thread may call these functions. Functions marked [context] need a current context.
struct DriverApi {
  Result (*init)(unsigned flags);
  Result (*driver_get_version)(int* version);
  Result (*get_error_name)(Result result, const char** name);
  Result (*get_error_string)(Result result, const char** text);

  Result (*device_get_count)(int* count);
  Result (*device_get)(DeviceHandle* device, int ordinal);
  Result (*device_get_name)(char* name, int size, DeviceHandle device);
  Result (*device_get_attribute)(int* value, int attribute, DeviceHandle device);
  Result (*primary_context_retain)(ContextHandle* context, DeviceHandle device);
  Result (*primary_context_get_state)(DeviceHandle device, unsigned* flags, int* active);
  Result (*context_push)(ContextHandle context);
  Result (*context_pop)(ContextHandle* context);

  Result (*stream_create)(StreamHandle* stream, unsigned flags);                        // [context]
  Result (*stream_destroy)(StreamHandle stream);                                        // [context]
  Result (*stream_query)(StreamHandle stream);                                          // [context]
  Result (*stream_synchronize)(StreamHandle stream);                                    // [context]
  Result (*stream_is_capturing)(StreamHandle stream, int* status);                      // [context]
  Result (*stream_wait_event)(StreamHandle stream, EventHandle event, unsigned flags);  // [context]
  Result (*event_create)(EventHandle* event, unsigned flags);                           // [context]
  Result (*event_destroy)(EventHandle event);                                           // [context]
  Result (*event_record)(EventHandle event, StreamHandle stream);                       // [context]
  Result (*event_query)(EventHandle event);                                             // [context]
  Result (*event_synchronize)(EventHandle event);                                       // [context]
  Result (*memory_host_register)(void* data, std::size_t size_bytes, unsigned flags);   // [context]
  Result (*memory_host_unregister)(void* data);                                         // [context]
  Result (*pointer_get_attribute)(void* value, int attribute, DevicePointer pointer);   // [context]
  Result (*memory_copy_to_device_async)(DevicePointer to, const void* from, std::size_t size_bytes,
                                        StreamHandle stream);  // [context]
  Result (*thread_exchange_capture_mode)(int* mode);
};

// A symbol's name, the CUDA version (1000 * major + 10 * minor) in which its present form appeared, and its place.
struct Symbol {
  const char* name;
  int version;
  std::size_t offset;  // in DriverApi
};

inline constexpr Symbol kSymbols[] = {
    {"cuInit", 2000, offsetof(DriverApi, init)},
    {"cuDriverGetVersion", 2020, offsetof(DriverApi, driver_get_version)},
    {"cuGetErrorName", 6000, offsetof(DriverApi, get_error_name)},
    {"cuGetErrorString", 6000, offsetof(DriverApi, get_error_string)},
    {"cuDeviceGetCount", 2000, offsetof(DriverApi, device_get_count)},
    {"cuDeviceGet", 2000, offsetof(DriverApi, device_get)},
    {"cuDeviceGetName", 2000, offsetof(DriverApi, device_get_name)},
    {"cuDeviceGetAttribute", 2000, offsetof(DriverApi, device_get_attribute)},
    {"cuDevicePrimaryCtxRetain", 7000, offsetof(DriverApi, primary_context_retain)},
    {"cuDevicePrimaryCtxGetState", 7000, offsetof(DriverApi, primary_context_get_state)},
    {"cuCtxPushCurrent", 4000, offsetof(DriverApi, context_push)},
    {"cuCtxPopCurrent", 4000, offsetof(DriverApi, context_pop)},
    {"cuStreamCreate", 2000, offsetof(DriverApi, stream_create)},
    {"cuStreamDestroy", 4000, offsetof(DriverApi, stream_destroy)},
    {"cuStreamQuery", 2000, offsetof(DriverApi, stream_query)},
    {"cuStreamSynchronize", 2000, offsetof(DriverApi, stream_synchronize)},
    {"cuStreamIsCapturing", 10000, offsetof(DriverApi, stream_is_capturing)},
    {"cuStreamWaitEvent", 3020, offsetof(DriverApi, stream_wait_event)},
    {"cuEventCreate", 2000, offsetof(DriverApi, event_create)},
    {"cuEventDestroy", 4000, offsetof(DriverApi, event_destroy)},
    {"cuEventRecord", 2000, offsetof(DriverApi, event_record)},
    {"cuEventQuery", 2000, offsetof(DriverApi, event_query)},
    {"cuEventSynchronize", 2000, offsetof(DriverApi, event_synchronize)},
    {"cuMemHostRegister", 6050, offsetof(DriverApi, memory_host_register)},
    {"cuMemHostUnregister", 4000, offsetof(DriverApi, memory_host_unregister)},
    {"cuPointerGetAttribute", 4000, offsetof(DriverApi, pointer_get_attribute)},
    {"cuMemcpyHtoDAsync", 3020, offsetof(DriverApi, memory_copy_to_device_async)},
    {"cuThreadExchangeStreamCaptureMode", 10010, offsetof(DriverApi, thread_exchange_capture_mode)},
};

}  // namespace pyecho::cuda
