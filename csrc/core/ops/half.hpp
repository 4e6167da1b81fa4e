// Half-precision floats, converted without branches so that the compiler vectorises loops. Conversions round to
// nearest, ties to even; subnormal numbers are exact, and NaN stays NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace pyecho::ops {

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

// Returns a float that rounds to the same half-precision number as `value`: rounded towards zero, with the last bit set
// where digits were lost.
[[nodiscard]] inline float rounded_to_odd(double value) noexcept {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) {
    return nearest;
  }
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  bits -= std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? 1U : 0U;
  return std::bit_cast<float>(bits | 1U);
}

}  // namespace pyecho::ops
