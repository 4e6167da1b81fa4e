// Elements as C++ types, and conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/ops/operation.hpp"

namespace pyecho::ops {

// Half-precision floats are converted without branches, so that the compiler makes vectors of loops. Conversions round to
// nearest, ties to even; subnormal numbers are exact, and NaN stays NaN.
struct Half {
  std::uint16_t bits;
};

struct Bfloat {
  std::uint16_t bits;
};

[[nodiscard]] constexpr float to_float(Half half) noexcept {
  constexpr std::uint32_t kExponent = 0x7c00U << 13;
  std::uint32_t bits = (half.bits & 0x7fffU) << 13;
  const std::uint32_t exponent = bits & kExponent;
  bits += (127U - 15U) << 23;
  const std::uint32_t special = (bits + ((128U - 16U) << 23)) | ((bits & 0x7fffffU) != 0 ? 0x400000U : 0U);
  // One more in the exponent puts a 1 before the digits, which the subtraction takes away again.
  const float digits = std::bit_cast<float>(bits + (1U << 23)) - std::bit_cast<float>(113U << 23);
  bits = exponent == kExponent ? special : exponent == 0 ? std::bit_cast<std::uint32_t>(digits) : bits;
  return std::bit_cast<float>(bits | (half.bits & 0x8000U) << 16);
}

[[nodiscard]] constexpr float to_float(Bfloat value) noexcept {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

[[nodiscard]] constexpr Half to_half(float value) noexcept {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t bits = all & 0x7fffffffU;
  // Adding 0.5 leaves the digits of a subnormal half, rounded by the addition, in the lowest bits.
  const float shifted = std::bit_cast<float>(bits) + 0.5F;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t normal = (bits - ((127U - 15U) << 23) + 0xfffU + ((bits >> 13) & 1U)) >> 13;
  const std::uint32_t special = bits > 0x7f800000U ? 0x7e00U | ((bits >> 13) & 0x3ffU) : 0x7c00U;
  const std::uint32_t half = bits >= 0x47800000U ? special : bits < 0x38800000U ? small : normal;
  return {static_cast<std::uint16_t>(half | (all & 0x80000000U) >> 16)};
}

[[nodiscard]] constexpr Bfloat to_bfloat(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<std::uint16_t>((nan ? bits | 0x400000U : rounded) >> 16)};
}

// In the order of Element.
using Numbers = std::tuple<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                           std::uint64_t, std::int64_t, Half, Bfloat, float, double>;

// Calls `f` with std::type_identity<T>. `element` must not be kOther.
template <std::size_t kIndex = 0, class F>
decltype(auto) with_type(Element element, F&& f) {
  if constexpr (kIndex + 1 < std::tuple_size_v<Numbers>) {
    if (element != static_cast<Element>(kIndex)) {
      return with_type<kIndex + 1>(element, std::forward<F>(f));
    }
  }
  return std::forward<F>(f)(std::type_identity<std::tuple_element_t<kIndex, Numbers>>{});
}

[[nodiscard]] inline std::size_t size_of(Element element) {
  return with_type(element, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

// Returns the largest value of an integer type, 1 of floats: kNormalize maps it to 1.
[[nodiscard]] inline double unit_of(Element element) {
  return with_type(element, []<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<double>(std::numeric_limits<T>::max());
    } else {
      return 1.0;
    }
  });
}

// Rounds to the nearest integer, ties to even, without a call.
template <class T>
[[nodiscard]] constexpr T rounded(T value) noexcept {
  constexpr T kWhole = T{1} / std::numeric_limits<T>::epsilon();  // from here on, there are no fractions
  const T magic = value < 0 ? -kWhole : kWhole;
  return value > -kWhole && value < kWhole ? value + magic - magic : value;
}

// Rounds to the nearest, ties to even; to half-precision floats by way of float. Integers saturate, and NaN becomes 0.
template <class U, class T>
[[nodiscard]] constexpr U converted(T value) noexcept {
  if constexpr (std::is_same_v<T, U>) {
    return value;
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>) {
    return converted<U>(to_float(value));
  } else if constexpr (std::is_same_v<U, Half>) {
    return to_half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<U, Bfloat>) {
    return to_bfloat(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<U>) {
    return static_cast<U>(value);
  } else {
    using Limits = std::numeric_limits<U>;
    if constexpr (std::is_integral_v<T>) {
      return std::in_range<U>(value) ? static_cast<U>(value) : value < T{} ? Limits::min() : Limits::max();
    } else {
      constexpr auto kLeast = static_cast<T>(Limits::min());
      constexpr T kPastMost = T{2} * static_cast<T>(std::uint64_t{1} << (Limits::digits - 1));
      const T whole = rounded(value);
      const U inside = static_cast<U>(whole >= kLeast && whole < kPastMost ? whole : T{});
      return whole >= kPastMost ? Limits::max() : whole < kLeast ? Limits::min() : inside;
    }
  }
}

}  // namespace pyecho::ops
