// What a failed call of the CUDA driver throws.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "cuda/driver_api.hpp"

namespace pyecho::cuda {

// what(): "cuEventRecord failed: CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle; ..."
class CudaError : public std::runtime_error {
 public:
  // `name` and `call` are the driver's names, or "" where no call was made (there is no driver, say).
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
