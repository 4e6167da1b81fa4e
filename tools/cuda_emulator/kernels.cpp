// The runtime API's functions of the host, and kernels, which are known by their names only.
#include <map>
#include <string>
#include <tuple>

#include "runtime.hpp"

namespace {

// By their handles on the host; guarded by the machine's mutex, and never destroyed.
auto& kernel_names = *new std::map<const void*, const char*>;

cudaError_t launch(const char* function, const void* kernel, void** arguments, cudaStream_t handle) {
  return runtime(function, [&](Lock&) {
    Stream& stream = stream_of(handle);
    auto found = kernel_names.find(kernel);
    const std::string name = found == kernel_names.end() ? "an unknown kernel" : found->second;
    if (name.find("spin_kernel") == std::string::npos) {
      violation("operators.py does not replace the operator that launches " + name);
      throw Failure{kNotSupported};
    }
    const std::chrono::nanoseconds cycles(*static_cast<int64_t*>(arguments[0]));  // torch.cuda._sleep
    issue(stream, Kind::kKernel, [cycles] { std::this_thread::sleep_for(cycles); });
  });
}

}  // namespace

extern "C" {

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return runtime(__func__, [&](Lock&) { issue(stream_of(stream), Kind::kKernel, [=] { function(argument); }); });
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  return launch(__func__, kernel, arguments, stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  return launch("cudaLaunchKernel", kernel, arguments, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  return launch(__func__, kernel, arguments, config->stream);
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* on_host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(on_host));
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}

// Calls that the compiler of CUDA puts into programs: their kernels are known by name only.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterFunction(void**, const char* on_host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const Lock lock(machine().mutex);
  kernel_names[on_host] = name;
}

static thread_local std::tuple<dim3, dim3, size_t, void*> configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  std::tie(*grid, *block, *shared, *static_cast<void**>(stream)) = configuration;
  return cudaSuccess;
}
}
