// The exception for failed calls of the CUDA driver.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "cuda/driver_api.hpp"

namespace pyecho::cuda {

// what(): "cuEventRecord failed: CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle; ..."
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

}  // namespace pyecho::cuda
