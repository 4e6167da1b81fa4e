// Sums and products of bytes that cannot wrap around: what no address space holds is kTooLarge, and stays that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pyecho {

inline constexpr std::size_t kTooLarge = std::size_t{1} << 62U;

[[nodiscard]] constexpr std::size_t plus(std::size_t bytes, std::size_t more) noexcept {
  return std::min(kTooLarge, std::min(kTooLarge, bytes) + std::min(kTooLarge, more));
}

[[nodiscard]] constexpr std::size_t times(std::size_t bytes, std::size_t count) noexcept {
  return bytes >= kTooLarge || (bytes != 0 && count > kTooLarge / bytes) ? kTooLarge : bytes * count;
}

// Returns the bytes of an array of this shape, none of whose extents is negative.
template <class Shape>
[[nodiscard]] constexpr std::size_t bytes_of_array(std::size_t element_bytes, const Shape& shape) noexcept {
  for (const auto extent : shape) {
    element_bytes = times(element_bytes, static_cast<std::size_t>(extent));
  }
  return element_bytes;
}

}  // namespace pyecho
