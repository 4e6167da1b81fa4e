// Releases the GIL for native work.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <utility>

#include "bindings/waiting.hpp"

namespace pyecho::bindings {

// Shorter copies keep the GIL, because releasing and retaking it costs more, and a busy consumer may keep it for long.
inline constexpr std::size_t kGilFreeBytes = std::size_t{32} << 10;

// Releases the GIL if `wanted`. The destructor does not retake it, so call take_back() (see take_gil).
class GilRelease {
 public:
  explicit GilRelease(bool wanted) : wanted_(wanted) { release(); }
  void release() { state_ = wanted_ ? PyEval_SaveThread() : nullptr; }
  void take_back() {
    if (state_ != nullptr) {
      take_gil(std::exchange(state_, nullptr));
    }
  }

 private:
  bool wanted_;
  PyThreadState* state_ = nullptr;
};

// Returns what `call`, which needs no Python, returns; without the GIL if that is wanted.
template <class Call>
auto without_gil(bool wanted, const Call& call) {
  GilRelease gil(wanted);
  try {
    auto result = call();
    gil.take_back();
    return result;
  } catch (...) {
    gil.take_back();
    throw;
  }
}

}  // namespace pyecho::bindings
