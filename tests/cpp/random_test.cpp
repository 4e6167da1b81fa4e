#include "core/random.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/chi_square.hpp"

namespace pyecho::test {
namespace {

// Without rejection a third of the numbers below 3 * 2^30 would be twice as likely as the others.
TEST(Random, below_is_uniform_where_rejection_matters) {
  Xoshiro256 random(4);
  const std::uint32_t third = 1U << 30;
  std::vector<int> low_bits(3);
  const std::uint64_t draws = 90'000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    ++low_bits[random.below(3 * third) % 3];
  }
  EXPECT_LT(chi_square(low_bits), 14.0);
}

}  // namespace
}  // namespace pyecho::test
