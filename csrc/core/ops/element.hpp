// Elements as C++ types, and conversions between them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/ops/half.hpp"
#include "core/ops/operation.hpp"

namespace pyecho::ops {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>;

// Calls `f` with std::type_identity<T>. `element` must not be kOther.
template <class F>
decltype(auto) with_type(Element element, F&& f) {
  switch (element) {
    case Element::kInt8:
      return std::forward<F>(f)(std::type_identity<std::int8_t>{});
    case Element::kUint16:
      return std::forward<F>(f)(std::type_identity<std::uint16_t>{});
    case Element::kInt16:
      return std::forward<F>(f)(std::type_identity<std::int16_t>{});
    case Element::kUint32:
      return std::forward<F>(f)(std::type_identity<std::uint32_t>{});
    case Element::kInt32:
      return std::forward<F>(f)(std::type_identity<std::int32_t>{});
    case Element::kUint64:
      return std::forward<F>(f)(std::type_identity<std::uint64_t>{});
    case Element::kInt64:
      return std::forward<F>(f)(std::type_identity<std::int64_t>{});
    case Element::kFloat16:
      return std::forward<F>(f)(std::type_identity<Half>{});
    case Element::kBfloat16:
      return std::forward<F>(f)(std::type_identity<Bfloat>{});
    case Element::kFloat32:
      return std::forward<F>(f)(std::type_identity<float>{});
    case Element::kFloat64:
      return std::forward<F>(f)(std::type_identity<double>{});
    default:
      return std::forward<F>(f)(std::type_identity<std::uint8_t>{});
  }
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

// To floats: rounds to nearest, ties to even. To integers: likewise, saturates, and makes NaN 0.
template <class U, class T>
[[nodiscard]] constexpr U converted(T value) noexcept {
  if constexpr (std::is_same_v<T, U>) {
    return value;
  } else if constexpr (kIsHalf<T>) {
    return converted<U>(to_float(value));
  } else if constexpr (kIsHalf<U>) {
    auto narrow = static_cast<float>(value);
    if constexpr (std::is_same_v<T, double>) {
      narrow = rounded_to_odd(value);
    }
    if constexpr (std::is_same_v<U, Half>) {
      return to_half(narrow);
    } else {
      return to_bfloat(narrow);
    }
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
