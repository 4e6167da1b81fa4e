#include "cuda/driver.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace pyecho::cuda {
namespace {

constexpr const char* kDefaultPath = "libcuda.so.1";
constexpr const char* kPathVariable = "PYECHO_CUDA_DRIVER";
constexpr const char* kNone = "none";
constexpr int kOldestVersion = 12000;

std::string path_from_environment() {
  const char* const path = std::getenv(kPathVariable);  // NOLINT(concurrency-mt-unsafe): read once, never set here
  return path == nullptr || *path == '\0' ? kDefaultPath : path;
}

std::string dotted(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

}  // namespace

const Driver& Driver::get() {
  // Leaked, because objects destroyed at exit may still use it.
  static const Driver* const driver = new Driver(path_from_environment());
  return *driver;
}

Driver::Driver(const std::string& path) : explanation_(load(path)) {}

std::string Driver::explanation() const {
  if (explanation_.empty() && fork_guard_.forked()) {
    return "CUDA was initialised before fork() and cannot be used in the child; use the 'spawn' start method, or start "
           "the child before the first use of CUDA";
  }
  return explanation_;
}

void Driver::require() const {
  if (!ready()) {
    throw CudaError(explanation(), code_, "", "");
  }
}

// Returns the problem and its remedy, or "".
std::string Driver::load(const std::string& path) {
  if (path == kNone) {
    return std::string("CUDA is switched off by ") + kPathVariable + "=none; unset it";
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread on our platforms
    return std::string("no CUDA driver was found (") + (reason == nullptr ? path.c_str() : reason) +
           "); install NVIDIA's driver, or name its libcuda in " + kPathVariable;
  }
  void* const entry = dlsym(library, "cuGetProcAddress_v2");
  if (entry == nullptr) {
    return path + " has no cuGetProcAddress_v2: it is no CUDA driver, or one older than 12.0, which pyecho needs; " +
           "update the driver, or name another one in " + kPathVariable;
  }
  std::string problem = resolve(reinterpret_cast<GetProcAddress>(entry));
  return problem.empty() ? initialize() : problem;
}

std::string Driver::resolve(GetProcAddress get_proc_address) {
  for (const Symbol& symbol : kSymbols) {
    void* function = nullptr;
    int status = kSymbolFound;
    const Result result = get_proc_address(symbol.name, &function, symbol.version, kProcAddressLegacyStream, &status);
    if (result == kStubLibrary) {
      return std::string(
                 "the libcuda that was found is CUDA's stub (CUDA_ERROR_STUB_LIBRARY), made for linking only; "
                 "name the driver's own in ") +
             kPathVariable;
    }
    if (result != kSuccess || status != kSymbolFound || function == nullptr) {
      return std::string("the CUDA driver lacks ") + symbol.name + " (as of CUDA " + dotted(symbol.version) +
             "), which pyecho needs; update the driver";
    }
    std::memcpy(reinterpret_cast<std::byte*>(&api_) + symbol.offset, static_cast<const void*>(&function),
                sizeof(function));
  }
  return "";
}

std::string Driver::initialize() {
  static_cast<void>(api_.driver_get_version(&version_));  // needs no cuInit()
  if (version_ != 0 && version_ < kOldestVersion) {
    return "the CUDA driver is of version " + dotted(version_) + ", and pyecho needs " + dotted(kOldestVersion) +
           " or newer; update the driver";
  }
  if (const Result result = api_.init(0); result != kSuccess) {
    code_ = result == kNoDevice ? kNoDevice : kNotInitialized;
    return describe(result, "cuInit") + "; check that a device is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)";
  }
  if (const Result result = api_.device_get_count(&device_count_); result != kSuccess) {
    return describe(result, "cuDeviceGetCount");
  }
  if (device_count_ == 0) {
    code_ = kNoDevice;
    return "the CUDA driver sees no device; check that one is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)";
  }
  return "";
}

// Returns the driver's name of a result, or "".
std::string Driver::name_of(Result result) const {
  const char* name = nullptr;
  return api_.get_error_name(result, &name) != kSuccess || name == nullptr ? "" : name;
}

std::string Driver::describe(Result result, const char* call) const {
  const std::string name = name_of(result);
  const char* text = nullptr;
  if (api_.get_error_string(result, &text) != kSuccess || text == nullptr) {
    text = "no description";
  }
  return std::string(call) + " failed: " + (name.empty() ? "unknown error" : name) + " (" + std::to_string(result) +
         "): " + text;
}

CudaError Driver::error(Result result, std::size_t symbol_offset) const {
  const char* call = "a call of the CUDA driver";
  for (const Symbol& symbol : kSymbols) {
    if (symbol.offset == symbol_offset) {
      call = symbol.name;
    }
  }
  return {describe(result, call), result, name_of(result), call};
}

}  // namespace pyecho::cuda
