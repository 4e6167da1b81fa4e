// Driver functions that pyecho does not call but its tests do, to stand for the user's program. In the form of
// csrc/cuda/driver_api.hpp.
#pragma once

#include "cuda/driver_api.hpp"

namespace pyecho::standin {

using HostFunctionPointer = void (*)(void* argument);

// All of them need a current context.
struct ExtraApi {
  cuda::Result (*memory_allocate)(cuda::DevicePointer* pointer, std::size_t size_bytes);
  cuda::Result (*memory_free)(cuda::DevicePointer pointer);
  cuda::Result (*memory_copy_to_host_async)(void* to, cuda::DevicePointer from, std::size_t size_bytes,
                                            cuda::StreamHandle stream);
  cuda::Result (*launch_host_function)(cuda::StreamHandle stream, HostFunctionPointer function, void* argument);
  cuda::GetProcAddress get_proc_address;
};

inline constexpr cuda::Symbol kExtraSymbols[] = {
    {"cuMemAlloc", 3020, offsetof(ExtraApi, memory_allocate)},
    {"cuMemFree", 3020, offsetof(ExtraApi, memory_free)},
    {"cuMemcpyDtoHAsync", 3020, offsetof(ExtraApi, memory_copy_to_host_async)},
    {"cuLaunchHostFunc", 10000, offsetof(ExtraApi, launch_host_function)},
    {"cuGetProcAddress", 12000, offsetof(ExtraApi, get_proc_address)},
};

}  // namespace pyecho::standin
