#include "core/ops/element.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/random.hpp"

namespace pyecho::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rounds to a float with so many digits, by arithmetic.
double rounded_to(double value, int digits, int least_exponent, double most) {
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  const double unit = std::ldexp(1.0, std::max(std::ilogb(value), least_exponent) - digits);
  const double result = std::nearbyint(value / unit) * unit;
  return std::fabs(result) > most ? std::copysign(kInfinity, value) : result;
}

TEST(ElementTest, every_half_is_a_float_and_comes_back) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    const int exponent = static_cast<int>(bits >> 10 & 31U);
    const int digits = static_cast<int>(bits & 1023U);
    if (exponent == 31 && digits != 0) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(to_half(value).bits, bits | 0x200U);
      continue;
    }
    const double size =
        exponent == 31 ? kInfinity : std::ldexp(exponent == 0 ? digits : digits + 1024, std::max(exponent, 1) - 25);
    ASSERT_EQ(static_cast<double>(value), bits < 32768 ? size : -size);
    ASSERT_EQ(to_half(value).bits, bits);
  }
}

TEST(ElementTest, floats_are_rounded_to_the_nearest_half) {
  Xoshiro256 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    const auto value = std::bit_cast<float>(i % 2 == 0 ? bits : (bits & 0x87ffffffU) + 0x33000000U);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(to_half(value))));
      ASSERT_TRUE(std::isnan(to_float(to_bfloat(value))));
      continue;
    }
    const auto exact = static_cast<double>(value);
    ASSERT_EQ(static_cast<double>(to_float(to_half(value))), rounded_to(exact, 10, -14, 65504)) << value;
    ASSERT_EQ(static_cast<double>(to_float(to_bfloat(value))), rounded_to(exact, 7, -126, 0x1.fep127)) << value;
  }
}

TEST(ElementTest, integers_are_rounded_and_saturate) {
  EXPECT_EQ(converted<std::uint8_t>(2.5F), 2);
  EXPECT_EQ(converted<std::uint8_t>(3.5F), 4);
  EXPECT_EQ(converted<std::uint8_t>(-0.6), 0);
  EXPECT_EQ(converted<std::uint8_t>(255.4), 255);
  EXPECT_EQ(converted<std::uint8_t>(1e9F), 255);
  EXPECT_EQ(converted<std::int8_t>(-kInfinity), -128);
  EXPECT_EQ(converted<std::int32_t>(std::nan("")), 0);
  EXPECT_EQ(converted<std::int64_t>(0x1.0p63), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(converted<std::int64_t>(-0x1.0p63), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(converted<std::uint64_t>(0x1.0p64), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(converted<std::uint64_t>(0x1.0p63), std::uint64_t{1} << 63);
  EXPECT_EQ(converted<std::uint16_t>(std::int64_t{-1}), 0);
  EXPECT_EQ(converted<std::int16_t>(std::uint64_t{40000}), 32767);
  EXPECT_EQ(converted<std::int64_t>(0x1.0p62 + 1024), (std::int64_t{1} << 62) + 1024);
  EXPECT_EQ(converted<std::int32_t>(-2147483648.0F), std::numeric_limits<std::int32_t>::min());
}

}  // namespace
}  // namespace pyecho::ops
