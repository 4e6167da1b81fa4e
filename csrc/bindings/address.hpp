// Converts addresses and handles, which are numbers in Python.
#pragma once

#include <cstdint>

namespace pyecho::bindings {

inline void* pointer(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace pyecho::bindings
