// Functions of libraries that Python has loaded, by their addresses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pyecho::bindings {

// Sets pointers to functions to these addresses.
template <std::size_t kCount, class... Function>
void point(const std::array<std::uintptr_t, kCount>& addresses, Function*&... functions) noexcept {
  static_assert(sizeof...(functions) == kCount);
  const std::uintptr_t* next = addresses.data();
  ((functions = reinterpret_cast<Function*>(*next++)), ...);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace pyecho::bindings
