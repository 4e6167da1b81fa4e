// The runtime API that PyTorch uses, but kernels (kernels.cpp). What else it links is a stub (build.py).
#include "runtime.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

extern "C" {

// ---- Devices ----

cudaError_t cudaGetDeviceCount(int* count) { PASSIVE_CALL(*count = static_cast<int>(machine().devices.size())); }
cudaError_t cudaGetDevice(int* device) { PASSIVE_CALL(*device = current_device()); }
cudaError_t cudaSetDevice(int device) { CALL(set_device(checked(device))); }
cudaError_t cudaDeviceSynchronize() { CALL(synchronize_device(lock, used_device())); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return runtime(__func__, [&](Lock&) {
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Emulated device %d", checked(device));
    properties->major = 9;
    properties->totalGlobalMem = static_cast<size_t>(machine().settings.device_limit);
    properties->multiProcessorCount = 1;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = properties->maxThreadsPerMultiProcessor = 1024;
    for (int axis = 0; axis < 3; ++axis) {
      properties->maxThreadsDim[axis] = 1024;
      properties->maxGridSize[axis] = 65535;
    }
    properties->sharedMemPerBlock = properties->sharedMemPerMultiprocessor = 48 << 10;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->l2CacheSize = 1 << 20;
    properties->unifiedAddressing = properties->concurrentKernels = 1;
    properties->textureAlignment = 512;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return runtime(
      __func__,
      [&](Lock&) {
        checked(device);
        *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
      },
      true);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  std::snprintf(id, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = static_cast<int>(machine().settings.version);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *function = driver ? dlsym(driver, (std::string(name) + "_v2").c_str()) : nullptr;
  if (driver && !*function) *function = dlsym(driver, name);
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// ---- Errors ----

cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(last_error); }
cudaError_t cudaGetLastError() { return static_cast<cudaError_t>(std::exchange(last_error, 0)); }

const char* cudaGetErrorString(cudaError_t error) {
  static thread_local char text[64];
  if (error == cudaErrorMemoryAllocation) return "out of memory";
  std::snprintf(text, sizeof text, "emulated error %d", static_cast<int>(error));
  return text;
}

const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

// ---- Memory ----

cudaError_t cudaMalloc(void** memory, size_t size) { CALL(*memory = allocate_device(size, used_device())); }

cudaError_t cudaFree(void* memory) {
  return runtime(__func__, [&](Lock&) {
    used_device();
    if (memory) free_device(memory);
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  CALL(*pool = reinterpret_cast<cudaMemPool_t>(&machine().devices[checked(device)]));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  CALL(std::memcpy(value, &reinterpret_cast<Device*>(pool)->used_bytes, sizeof(uint64_t)));
}

cudaError_t cudaMallocAsync(void** memory, size_t size, cudaStream_t) { return cudaMalloc(memory, size); }
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) { CALL(free_device(memory, &stream_of(stream))); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return runtime(__func__, [&](Lock&) {
    *total = static_cast<size_t>(machine().settings.device_limit);
    const auto used = static_cast<size_t>(machine().devices[used_device()].used_bytes);
    *free = *total > used ? *total - used : 0;
  });
}

cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned) { CALL(*memory = allocate_pinned(size)); }
cudaError_t cudaFreeHost(void* memory) { CALL(if (memory) free_pinned(lock, memory)); }
cudaError_t cudaHostRegister(void* memory, size_t size, unsigned) { CALL(register_host(memory, size)); }
cudaError_t cudaHostUnregister(void* memory) { CALL(unregister_host(lock, memory)); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return runtime(__func__, [&](Lock&) {
    *attributes = {};
    const Block* block = block_of(pointer);
    if (!block) return;
    const bool on_device = block->place == Place::kDevice;
    attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = block->device;
    attributes->devicePointer = const_cast<void*>(pointer);
    attributes->hostPointer = on_device ? nullptr : const_cast<void*>(pointer);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  CALL(copy(lock, stream_of(stream), to, from, size, static_cast<Direction>(kind)));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  CALL(copy(lock, stream_of(stream), to, from, size, Direction::kDeviceToDevice));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return runtime(__func__, [&](Lock& lock) {
    check_unsafe();
    Stream& stream = stream_of(nullptr);
    copy(lock, stream, to, from, size, static_cast<Direction>(kind));
    synchronize(lock, stream);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  CALL(fill(stream_of(stream), to, value, size));
}

cudaError_t cudaMemset(void* to, int value, size_t size) { return cudaMemsetAsync(to, value, size, nullptr); }

// ---- Streams and events ----

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return runtime(__func__, [&](Lock&) {
    const bool blocking = (flags & cudaStreamNonBlocking) == 0;
    *stream = reinterpret_cast<cudaStream_t>(create_stream(used_device(), blocking, priority));
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { CALL(destroy_stream(stream_of(stream))); }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) { CALL(*priority = stream_of(stream).priority); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { CALL(query(stream_of(stream))); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { CALL(synchronize(lock, stream_of(stream))); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CALL(wait(stream_of(stream), event_of(event)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return runtime(__func__, [&](Lock&) {
    const bool timed = (flags & cudaEventDisableTiming) == 0;
    *event = reinterpret_cast<cudaEvent_t>(create_event(used_device(), timed));
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return runtime(__func__, [&](Lock&) {
    event_of(event).alive = false;
    --machine().counts.events;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  CALL(record(event_of(event), stream_of(stream)));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CALL(record(event_of(event), stream_of(stream)));
}

cudaError_t cudaEventQuery(cudaEvent_t event) { CALL(query(event_of(event))); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { CALL(synchronize(lock, event_of(event))); }

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  CALL(*ms = elapsed_ms(event_of(begin), event_of(end)));
}

// ---- Captures and graphs ----

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  PASSIVE_CALL(*mode = static_cast<cudaStreamCaptureMode>(exchange_mode(static_cast<int>(*mode))));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  CALL(begin_capture(stream_of(stream), static_cast<int>(mode)));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  CALL(*graph = reinterpret_cast<cudaGraph_t>(end_capture(stream_of(stream))));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  CALL(*status = static_cast<cudaStreamCaptureStatus>(capture_status(stream_of(stream))));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return runtime(__func__, [&](Lock&) {
    const Stream& stream = stream_of(handle);
    *status = static_cast<cudaStreamCaptureStatus>(capture_status(stream));
    if (id) *id = stream.capture ? stream.capture->id : 0;
    if (graph) *graph = nullptr;
    if (dependencies) *dependencies = nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = 0;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  CALL(*count = graph_of(graph).steps.size());
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  CALL(*executable = reinterpret_cast<cudaGraphExec_t>(new Graph(graph_of(graph))));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  CALL(launch(stream_of(stream), graph_of(executable)));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { CALL(delete &graph_of(graph)); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { CALL(delete &graph_of(executable)); }
}
