// The CUDA driver of this machine: loaded when it is first asked for, never linked against.
//
// That there is no driver, or none that will do, is a state with an explanation and not an error; only calls that need
// CUDA throw. The library named by PYECHO_CUDA_DRIVER is taken instead of libcuda.so.1; "none" means to do without.
//
// Loaded once and never unloaded: threads of the driver outlive everything. cuInit() is called with the first look, not
// at import. In a child of fork() the driver is dead, and every call says so.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/sync/fork_guard.hpp"
#include "cuda/driver_api.hpp"
#include "cuda/error.hpp"

namespace pyecho::cuda {

enum class DriverState : unsigned char {
  kReady,
  kDisabled,   // PYECHO_CUDA_DRIVER=none
  kNoLibrary,  // no such library
  kTooOld,     // older than CUDA 12.0, or a symbol is missing
  kFailed,     // cuInit() failed
  kNoDevices,
  kForked,  // initialised before fork(), and this is the child
};

class Driver {
 public:
  // The driver of this process; the first call loads it. Any thread.
  static const Driver& get();

  // Loads `path` ("none" to do without). For tests; others use get().
  explicit Driver(const std::string& path);
  ~Driver() = default;  // the library stays loaded
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] DriverState state() const noexcept;
  [[nodiscard]] bool ready() const noexcept { return state() == DriverState::kReady; }
  // What is missing and what to do about it; empty when ready.
  [[nodiscard]] std::string explanation() const;
  // 1000 * major + 10 * minor of the newest CUDA the driver supports; 0 if there is no driver.
  [[nodiscard]] int version() const noexcept { return version_; }
  // 0 unless ready.
  [[nodiscard]] int device_count() const noexcept { return ready() ? device_count_ : 0; }

  // Throws CudaError with the explanation unless ready.
  void require() const;

  // Calls a driver function; throws CudaError if it fails. Requires ready().
  template <class... Parameters, class... Arguments>
  void call(Result (*DriverApi::*function)(Parameters...), Arguments... arguments) const {
    if (const Result result = (api_.*function)(arguments...); result != kSuccess) {
      throw error(result, offset_of(static_cast<const void*>(&(api_.*function))));
    }
  }
  // As call(), but answers the result instead.
  template <class... Parameters, class... Arguments>
  [[nodiscard]] Result try_call(Result (*DriverApi::*function)(Parameters...), Arguments... arguments) const noexcept {
    return (api_.*function)(arguments...);
  }
  // The error that call() would throw for this result.
  template <class... Parameters>
  [[nodiscard]] CudaError error_of(Result result, Result (*DriverApi::*function)(Parameters...)) const {
    return error(result, offset_of(static_cast<const void*>(&(api_.*function))));
  }

 private:
  void load(const std::string& path);
  void resolve(GetProcAddress get_proc_address);
  void initialize();
  void give_up(DriverState state, std::string explanation);
  [[nodiscard]] CudaError error(Result result, std::size_t symbol_offset) const;
  [[nodiscard]] std::string describe(Result result, const char* call) const;
  [[nodiscard]] std::size_t offset_of(const void* entry) const noexcept {
    return static_cast<std::size_t>(static_cast<const std::byte*>(entry) - reinterpret_cast<const std::byte*>(&api_));
  }

  ForkGuard fork_guard_;
  DriverApi api_{};
  DriverState state_ = DriverState::kReady;
  std::string explanation_;
  int version_ = 0;
  int device_count_ = 0;
};

// In the destructors of what the driver owns: the driver, or the context, may be gone already at exit, and then there is
// nothing left to free.
[[nodiscard]] constexpr bool torn_down(Result result) noexcept {
  return result == kNotInitialized || result == kDeinitialized || result == kContextIsDestroyed;
}

}  // namespace pyecho::cuda
