// Addresses and handles, which Python knows as numbers.
#pragma once

#include <cstdint>

namespace pyecho::bindings {

inline void* pointer(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace pyecho::bindings
