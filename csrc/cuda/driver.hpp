// The CUDA driver of this machine: loaded at the first use, never linked against.
//
// A missing or unsuitable driver is a state with an explanation, not an error; only calls that need CUDA throw.
// PYECHO_CUDA_DRIVER names the library to load instead of libcuda.so.1; "none" disables CUDA.
//
// Loaded once and never unloaded, because threads of the driver outlive everything. cuInit() is called at the first use,
// not at import. In a child of fork() the driver cannot be used: it is not ready, and require() throws.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/sync/fork_guard.hpp"
#include "cuda/driver_api.hpp"

namespace pyecho::cuda {

// A failed call of the CUDA driver. what(): "cuEventRecord failed: CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle; ..."
class CudaError : public std::runtime_error {
 public:
  // `name` and `call` are the driver's names, or "" if no call was made (for example, without a driver).
  CudaError(const std::string& message, Result code, std::string name, std::string call)
      : std::runtime_error(message), code_(code), name_(std::move(name)), call_(std::move(call)) {}

  [[nodiscard]] Result code() const noexcept { return code_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& call() const noexcept { return call_; }

 private:
  Result code_;
  std::string name_;
  std::string call_;
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

  [[nodiscard]] bool ready() const noexcept { return explanation_.empty() && !fork_guard_.forked(); }
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
  std::string load(const std::string& path);
  std::string resolve(GetProcAddress get_proc_address);
  std::string initialize();
  [[nodiscard]] CudaError error(Result result, std::size_t symbol_offset) const;
  [[nodiscard]] std::string name_of(Result result) const;
  [[nodiscard]] std::string describe(Result result, const char* call) const;
  [[nodiscard]] std::size_t offset_of(const void* entry) const noexcept {
    return static_cast<std::size_t>(static_cast<const std::byte*>(entry) - reinterpret_cast<const std::byte*>(&api_));
  }

  ForkGuard fork_guard_;
  DriverApi api_{};
  int version_ = 0;
  int device_count_ = 0;
  Result code_ = kNotInitialized;  // of require()'s error
  std::string explanation_;        // empty: usable, but for a fork
};

// True if the result means that the driver or the context has ended. Destructors that run at exit then have nothing left
// to free.
[[nodiscard]] constexpr bool torn_down(Result result) noexcept {
  return result == kNotInitialized || result == kDeinitialized || result == kContextIsDestroyed;
}

// Keeps for ever what owns memory that the device may still read: better lost than overwritten. It stays reachable, so that
// leak checkers do not report it.
template <class Owner>
void lose(Owner owner) {
  struct Lost {
    std::mutex mutex;
    std::list<Owner> owners;
  };
  static auto* const lost = new Lost;
  const std::scoped_lock lock(lost->mutex);
  lost->owners.push_back(std::move(owner));
}

}  // namespace pyecho::cuda
