#include "core/sync/reorder_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "core/plan/random.hpp"

namespace pyecho {
namespace {

TEST(ReorderRing, what_is_published_out_of_order_is_taken_in_order) {
  ReorderRing<> ring(4);
  std::uint32_t index = 0;
  std::array<std::uint32_t, 6> taken{};
  ring.publish(2, std::array{12U, 13U});
  ring.publish(1, 11);
  EXPECT_EQ(ring.try_take(index), Outcome::kEmpty);  // ticket 0 is open
  EXPECT_EQ(ring.take(taken), 0U);
  EXPECT_EQ(ring.taken(), 0U);
  ring.publish(0, 10);
  EXPECT_EQ(ring.try_take(index), Outcome::kOk);
  EXPECT_EQ(index, 10U);
  EXPECT_EQ(ring.take(taken), 3U);
  EXPECT_EQ(taken, (std::array<std::uint32_t, 6>{11, 12, 13}));
  EXPECT_EQ(ring.take(taken), 0U);
  EXPECT_EQ(ring.taken(), 4U);
}

TEST(ReorderRing, any_order_within_the_capacity_is_right_wherever_the_tickets_start) {
  Xoshiro256 random(1);
  const std::uint64_t half = std::uint64_t{1} << 63;
  for (const std::uint32_t capacity : {1U, 2U, 3U, 8U}) {
    const std::uint32_t cells = ReorderRing<>(capacity).capacity();
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, (std::uint64_t{cells} << 31) - 3,
                                      (std::uint64_t{cells} << 32) - 3, half - 3}) {
      ReorderRing<> ring(capacity, first);
      std::uint64_t ticket = first;
      for (int round = 0; round < 30; ++round) {
        std::vector<std::uint32_t> numbers(1 + random.below(cells));
        std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(ticket - first));
        std::vector<std::span<const std::uint32_t>> runs;
        for (std::span<const std::uint32_t> rest(numbers); !rest.empty(); rest = rest.subspan(runs.back().size())) {
          runs.push_back(rest.first(1 + random.below(static_cast<std::uint32_t>(rest.size()))));
        }
        for (std::size_t i = runs.size(); i > 1; --i) {
          std::swap(runs[i - 1], runs[random.below(static_cast<std::uint32_t>(i))]);
        }
        for (const auto run : runs) {
          run.size() == 1 ? ring.publish(first + run[0], run[0]) : ring.publish(first + run[0], run);
        }
        for (const std::uint64_t end = ticket + numbers.size(); ticket < end;) {
          std::vector<std::uint32_t> taken(1 + random.below(cells + 1));
          const std::uint64_t count =
              taken.size() == 1 ? (ring.try_take(taken[0]) == Outcome::kOk ? 1 : 0) : ring.take(taken);
          ASSERT_EQ(count, std::min(taken.size(), end - ticket));
          for (std::uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(taken[i], ticket++ - first);
          }
          ASSERT_EQ(ring.taken(), ticket);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pyecho
