// The driver API, as far as pyecho and PyTorch use it. What else PyTorch links is a stub (build.py).
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>

#include "emulator.hpp"

namespace {

using emulator::Failure;
using emulator::Lock;
using emulator::machine;

template <class Body>
CUresult driver(const char* function, Body body, bool passive = false) {
  return static_cast<CUresult>(emulator::call(function, passive, [&](Lock& lock) {
    if (!machine().in_use) throw Failure{emulator::kNotInitialized};
    body(lock);
  }));
}

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1; }

int current_device() {
  if (emulator::contexts.empty()) throw Failure{emulator::kInvalidContext};
  return emulator::contexts.back();
}

int checked(CUdevice device) {
  if (device < 0 || static_cast<size_t>(device) >= machine().devices.size()) throw Failure{emulator::kInvalidDevice};
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

extern "C" {

CUresult cuInit(unsigned) {
  return static_cast<CUresult>(emulator::call(__func__, false, [](Lock&) { machine().in_use = true; }));
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

CUresult cuDeviceGetCount(int* count) {
  return driver(__func__, [&](Lock&) { *count = static_cast<int>(machine().devices.size()); });
}

CUresult cuDeviceGet(CUdevice* device, int number) {
  return driver(__func__, [&](Lock&) { *device = checked(number); });
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return driver(__func__,
                [&](Lock&) { std::snprintf(name, static_cast<size_t>(size), "Emulated device %d", checked(device)); });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return driver(__func__, [&](Lock&) {
    checked(device);
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return driver(__func__, [&](Lock&) {
    emulator::use_context(checked(device));
    *context = context_of(device);
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return driver(__func__, [&](Lock&) {
    *flags = 0;
    *active = machine().devices[checked(device)].has_context;
  });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return driver(__func__, [&](Lock&) { emulator::contexts.push_back(checked(device_of(context))); });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return driver(__func__, [&](Lock&) {
    const int device = current_device();
    if (context) *context = context_of(device);
    emulator::contexts.pop_back();
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return driver(
      __func__, [&](Lock&) { *context = emulator::contexts.empty() ? nullptr : context_of(emulator::contexts.back()); },
      true);
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return driver(__func__, [&](Lock&) {
    if (!emulator::contexts.empty()) emulator::contexts.pop_back();
    if (context) emulator::contexts.push_back(checked(device_of(context)));
  });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return driver(__func__, [&](Lock&) {
    const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    *stream = reinterpret_cast<CUstream>(emulator::create_stream(current_device(), blocking, 0));
  });
}

CUresult cuStreamDestroy(CUstream stream) {
  return driver(__func__, [&](Lock&) { emulator::destroy_stream(emulator::stream_of(stream, current_device())); });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return driver(__func__,
                [&](Lock& lock) { emulator::synchronize(lock, emulator::stream_of(stream, current_device())); });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return driver(
      __func__,
      [&](Lock&) { *mode = static_cast<CUstreamCaptureMode>(emulator::exchange_mode(static_cast<int>(*mode))); }, true);
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return driver(__func__, [&](Lock&) {
    current_device();  // some drivers want a context
    const emulator::Block* block = emulator::block_of(reinterpret_cast<void*>(pointer));
    if (!block) throw Failure{emulator::kInvalidValue};
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *static_cast<unsigned*>(value) =
          block->place == emulator::Place::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      *static_cast<int*>(value) = block->device;
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
      *static_cast<CUcontext*>(value) = context_of(block->device);
    else
      throw Failure{emulator::kNotSupported};
  });
}
}
