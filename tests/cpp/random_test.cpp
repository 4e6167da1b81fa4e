#include "core/random.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/chi_square.hpp"

namespace pyecho::test {
namespace {

// Published vectors: SplitMix64 from seed 1234567 and xoshiro256** seeded by SplitMix64 from 0.
TEST(Random, splitmix64_matches_the_published_values) {
  std::uint64_t state = 1234567;
  for (const std::uint64_t expected : {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                       4593380528125082431U, 16408922859458223821U}) {
    state += kGoldenGamma;
    EXPECT_EQ(mix64(state), expected);
  }
}

TEST(Random, xoshiro256_matches_the_published_values) {
  Xoshiro256 of_zero(0);
  for (const std::uint64_t expected :
       {0x99ec5f36cb75f2b4U, 0xbf6e1f784956452aU, 0x1a5f849d4933e6e0U, 0x6aa594f1262d2d2cU}) {
    EXPECT_EQ(of_zero.next(), expected);
  }
  Xoshiro256 of_42(42);
  EXPECT_EQ(of_42.next(), 0x15780b2e0c2ec716U);
}

// Computed by a separate Python program. These values are part of the contract: a change would
// change the output of every seeded run.
TEST(Random, keys_and_units_never_change) {
  EXPECT_EQ(stream_key(0, 0, Draws::kDraw), 0x238275bc38fcbe91U);
  EXPECT_EQ(stream_key(7, 3, Draws::kFactor), 0x1c24566e5926353eU);
  EXPECT_DOUBLE_EQ(unit_at(0x1c24566e5926353eU, 5), 0.8912198197914626);
}

TEST(Random, numbers_made_ahead_are_the_same_and_can_be_looked_at) {
  Xoshiro256 random(4);
  RandomAhead ahead(4);
  for (std::uint32_t draw = 0; draw < 200; ++draw) {
    const std::uint32_t bound = 1000 + draw;
    RandomAhead later = ahead;
    for (std::uint32_t others = 0; others <= RandomAhead::kAhead; ++others) {
      ASSERT_EQ(ahead.peek(others, bound), later.below(bound));
    }
    ASSERT_EQ(ahead.below(bound), random.below(bound));
  }
}

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
