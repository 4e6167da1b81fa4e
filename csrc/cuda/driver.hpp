// The CUDA driver of this machine: loaded at the first use, never linked against.
//
// A missing or unsuitable driver is a state with an explanation, not an error; only calls that need CUDA throw.
// PYECHO_CUDA_DRIVER names the library to load instead of libcuda.so.1; "none" disables CUDA.
//
// Loaded once and never unloaded, because threads of the driver outlive everything. cuInit() is called at the first use,
// not at import. In a child of fork() the driver cannot be used: state() is kForked, and require() throws.
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
  // Returns the driver of this process. The first call loads it. Any thread.
  static const Driver& get();

  // Loads `path` ("none" disables CUDA). For tests; other code uses get().
  explicit Driver(const std::string& path);
  ~Driver() = default;  // the library stays loaded
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] DriverState state() const noexcept;
  [[nodiscard]] bool ready() const noexcept { return state() == DriverState::kReady; }
  // Describes the problem and its remedy; empty if ready.
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
  // Same as call(), but returns the result instead of throwing.
  template <class... Parameters, class... Arguments>
  [[nodiscard]] Result try_call(Result (*DriverApi::*function)(Parameters...), Arguments... arguments) const noexcept {
    return (api_.*function)(arguments...);
  }
  // Returns the error that call() would throw for this result.
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

// True if the result means that the driver or the context has ended. Destructors that run at exit then have nothing left
// to free.
[[nodiscard]] constexpr bool torn_down(Result result) noexcept {
  return result == kNotInitialized || result == kDeinitialized || result == kContextIsDestroyed;
}

}  // namespace pyecho::cuda
