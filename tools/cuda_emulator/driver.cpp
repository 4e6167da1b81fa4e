// The driver API, as far as pyecho and PyTorch use it. What else PyTorch links is a stub (build.py).
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>

#include "emulator.hpp"

using namespace emulator;

namespace {

template <class Body>
CUresult driver(const char* function, Body body, bool passive = false) {
  return static_cast<CUresult>(call(function, passive, [&](Lock& lock) {
    if (!machine().in_use) throw Failure{kNotInitialized};
    body(lock);
  }));
}

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1; }

int current_device() {
  if (contexts.empty()) throw Failure{kInvalidContext};
  return contexts.back();
}

int checked(CUdevice device) {
  if (device < 0 || static_cast<size_t>(device) >= machine().devices.size()) throw Failure{kInvalidDevice};
  return device;
}

const std::map<int, const char*> kNames{
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

}  // namespace

// A function of the API with this statement as its body; it holds the machine's mutex by `lock`.
#define CALL(statement) return driver(__func__, [&]([[maybe_unused]] Lock& lock) { statement; })
#define PASSIVE_CALL(statement) return driver(__func__, [&](Lock&) { statement; }, true)

extern "C" {

CUresult cuInit(unsigned) {
  return static_cast<CUresult>(call(__func__, false, [](Lock&) { machine().in_use = true; }));
}

CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(machine().settings.version);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  auto found = kNames.find(static_cast<int>(error));
  *name = found == kNames.end() ? "CUDA_ERROR_OTHER" : found->second;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }
CUresult cuDeviceGetCount(int* count) { CALL(*count = static_cast<int>(machine().devices.size())); }
CUresult cuDeviceGet(CUdevice* device, int number) { CALL(*device = checked(number)); }

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  CALL(std::snprintf(name, static_cast<size_t>(size), "Emulated device %d", checked(device)));
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return driver(__func__, [&](Lock&) {
    checked(device);
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return driver(__func__, [&](Lock&) {
    use_context(checked(device));
    *context = context_of(device);
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  PASSIVE_CALL(*active = machine().devices[checked(device)].has_context);
}

CUresult cuCtxPushCurrent(CUcontext context) { CALL(contexts.push_back(checked(device_of(context)))); }

CUresult cuCtxPopCurrent(CUcontext* context) {
  return driver(__func__, [&](Lock&) {
    const int device = current_device();
    if (context) *context = context_of(device);
    contexts.pop_back();
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  PASSIVE_CALL(*context = contexts.empty() ? nullptr : context_of(contexts.back()));
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return driver(__func__, [&](Lock&) {
    if (!contexts.empty()) contexts.pop_back();
    if (context) contexts.push_back(checked(device_of(context)));
  });
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return driver(__func__, [&](Lock&) {
    const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    *stream = reinterpret_cast<CUstream>(create_stream(current_device(), blocking, priority));
  });
}

CUresult cuStreamDestroy(CUstream stream) { CALL(destroy_stream(stream_of(stream, current_device()))); }
CUresult cuStreamSynchronize(CUstream stream) { CALL(synchronize(lock, stream_of(stream, current_device()))); }

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  PASSIVE_CALL(*mode = static_cast<CUstreamCaptureMode>(exchange_mode(static_cast<int>(*mode))));
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return driver(__func__, [&](Lock&) {
    current_device();  // some drivers want a context
    const Block* block = block_of(reinterpret_cast<void*>(pointer));
    if (!block) throw Failure{kInvalidValue};
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *static_cast<unsigned*>(value) = block->place == Place::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      *static_cast<int*>(value) = block->device;
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
      *static_cast<CUcontext*>(value) = context_of(block->device);
    else
      throw Failure{kNotSupported};
  });
}
}
