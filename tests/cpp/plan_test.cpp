#include "core/plan/plan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "support/plan_output.hpp"

namespace pyecho::test {
namespace {

// ---------------------------------------------------------------- factor

std::vector<std::uint32_t> uses_in_pass(double mean, std::uint64_t items, std::uint64_t known, std::uint64_t pass,
                                        std::uint64_t seed = 3) {
  EchoFactor factor(mean);
  factor.begin_pass(seed, pass, known);
  std::vector<std::uint32_t> uses(items);
  std::ranges::generate(uses, [&] { return factor.next(); });
  return uses;
}

TEST(EchoFactor, a_pass_has_exactly_the_uses_of_its_length_whether_that_is_known_or_not) {
  for (const double mean : {1.0, 1.1, 1.25, 1.999, 2.5, 3.75, 7.0, 1000.5}) {
    const EchoFactor factor(mean);
    EXPECT_EQ(factor.min_uses(), std::floor(mean));
    EXPECT_EQ(factor.max_uses(), std::ceil(mean));
    for (const std::uint64_t items : {0ULL, 1ULL, 2ULL, 3ULL, 7ULL, 10ULL, 999ULL}) {
      for (std::uint64_t pass = 0; pass < 5; ++pass) {
        for (const std::uint64_t known : {kUnknown, items, items / 2}) {  // the last: it turns out longer
          const std::vector<std::uint32_t> uses = uses_in_pass(mean, items, known, pass);
          ASSERT_EQ(std::accumulate(uses.begin(), uses.end(), 0ULL), uses_of(mean, items)) << mean << ' ' << items;
          ASSERT_TRUE(
              std::ranges::all_of(uses, [&](auto n) { return n == factor.min_uses() || n == factor.max_uses(); }));
        }
      }
      EXPECT_EQ(factor.uses_of_pass(items), uses_of(mean, items));
    }
  }
}

TEST(EchoFactor, segments_of_a_pass_have_exactly_its_uses_and_need_none_of_the_segments_before) {
  constexpr std::uint64_t kItems = 100;
  std::vector<std::uint64_t> more(kItems, 0);  // in all passes
  for (std::uint64_t pass = 0; pass < 4000; ++pass) {
    const std::uint64_t part = 1 + pass % (kItems + 2);
    const double mean = pass % 2 == 0 ? 2.3 : 1.05;
    EchoFactor factor(mean, false, part);
    factor.begin_pass(3, pass, kItems);
    for (std::uint64_t item = 0; item < kItems; ++item) {
      ASSERT_EQ(factor.more_before(item), factor.given()) << pass << ' ' << item;
      EchoFactor later(mean, false, part);
      later.begin_pass(3, pass, kItems);
      later.skip(item - item % part, later.more_before(item - item % part));
      for (std::uint64_t each = item - item % part; each < item; ++each) {
        static_cast<void>(later.next());
      }
      const std::uint32_t uses = factor.next();
      ASSERT_EQ(later.next(), uses) << pass << ' ' << item;
      more[item] += mean == 2.3 ? uses - 2 : 0;
    }
    ASSERT_EQ(factor.given() + kItems * factor.min_uses(), uses_of(mean, kItems));
  }
  for (const std::uint64_t count : more) {  // of 2000, each with the chance 0.3: within 5 deviations
    EXPECT_NEAR(static_cast<double>(count), 600, 103);
  }
}

// ---------------------------------------------------------------- configuration

TEST(Plan, a_pass_with_more_items_than_told_has_room_for_their_uses) {
  Plan plan({.capacity = 8, .slots = 12, .factor = 2, .batch_size = 4});
  plan.begin(0, {.items = 2, .uses = 20'000});
  for (std::uint32_t slot = 0; slot < 8; ++slot) {
    plan.feed(slot);
  }
  std::vector<Use> uses(4);
  std::uint32_t drawn = 0;
  EXPECT_EQ(plan.draw(uses, drawn), Outcome::kOk);
  EXPECT_EQ(drawn, 4U);
}

TEST(Plan, streams_that_cannot_have_equal_shares_are_refused) {
  EXPECT_THROW(Plan({.capacity = 2, .slots = 2, .streams = 3}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .iteration_uses = 3, .streams = 2}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .streams = 2, .min_uses = 1}), std::invalid_argument);
  EXPECT_THROW(Plan({.capacity = 4, .slots = 4, .unique_in_batch = true, .streams = 2, .batch_size = 8}),
               std::invalid_argument);
  Plan plan({.capacity = 1000, .slots = 1000, .streams = 2});
  constexpr std::uint64_t kTooMany = std::uint64_t{1} << 33;
  for (const Extent& extent :
       {Extent{.items = 4, .uses = 9}, Extent{.items = 1, .uses = 8}, Extent{.items = 0, .uses = 0}, Extent{.uses = 8},
        Extent{.items = 6, .uses = 4}, Extent{.items = 2, .uses = kTooMany}, Extent{.items = 8, .uses = kTooMany}}) {
    EXPECT_THROW(plan.begin(0, extent), std::invalid_argument) << extent.items << ' ' << extent.uses;
  }
  plan.begin(0, {.items = 2, .uses = 1'000'000});  // a pool larger than a pass needs room for a pass only
  EXPECT_THROW(Plan({.min_uses = 1}).begin(0, {.items = 2, .uses = 8}), std::invalid_argument);
}

}  // namespace
}  // namespace pyecho::test
