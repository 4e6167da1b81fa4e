#include "core/sync/reorder_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/plan/random.hpp"

namespace pyecho {
namespace {

TEST(ReorderRing, what_is_published_out_of_order_is_taken_in_order) {
  ReorderRing<> ring(4);
  std::uint32_t index = 0;
  ring.publish(2, 12);
  ring.publish(1, 11);
  EXPECT_EQ(ring.try_take(index), Outcome::kEmpty);  // ticket 0 is open
  EXPECT_EQ(ring.taken(), 0U);
  ring.publish(0, 10);
  for (const std::uint32_t expected : {10U, 11U, 12U}) {
    ASSERT_EQ(ring.try_take(index), Outcome::kOk);
    EXPECT_EQ(index, expected);
  }
  EXPECT_EQ(ring.try_take(index), Outcome::kEmpty);
  EXPECT_EQ(ring.taken(), 3U);
}

TEST(ReorderRing, of_capacity_one_alternates) {
  ReorderRing<> ring(1);
  for (std::uint64_t ticket = 0; ticket < 10; ++ticket) {
    std::uint32_t index = 0;
    ASSERT_EQ(ring.try_take(index), Outcome::kEmpty);
    ring.publish(ticket, static_cast<std::uint32_t>(ticket));
    ASSERT_EQ(ring.try_take(index), Outcome::kOk);
    EXPECT_EQ(index, ticket);
  }
}

TEST(ReorderRing, any_order_within_the_capacity_is_right_wherever_the_tickets_start) {
  Xoshiro256 random(1);
  const std::uint64_t half = std::uint64_t{1} << 63;
  for (const std::uint32_t capacity : {1U, 2U, 3U, 8U}) {
    const std::uint64_t cells = ReorderRing<>(capacity).capacity();
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{5}, (cells << 31) - 3, (cells << 32) - 3, half - 3}) {
      ReorderRing<> ring(capacity, first);
      std::uint64_t ticket = first;
      for (int round = 0; round < 30; ++round) {
        std::vector<std::uint64_t> tickets(1 + random.below(static_cast<std::uint32_t>(cells)));
        std::iota(tickets.begin(), tickets.end(), ticket);
        auto shuffled = tickets;
        for (std::size_t i = shuffled.size(); i > 1; --i) {
          std::swap(shuffled[i - 1], shuffled[random.below(static_cast<std::uint32_t>(i))]);
        }
        for (const std::uint64_t t : shuffled) {
          ring.publish(t, static_cast<std::uint32_t>(t - first));
        }
        for (const std::uint64_t t : tickets) {
          std::uint32_t index = 0;
          ASSERT_EQ(ring.try_take(index), Outcome::kOk);
          ASSERT_EQ(index, t - first);
        }
        ticket += tickets.size();
        ASSERT_EQ(ring.taken(), ticket);
      }
    }
  }
}

}  // namespace
}  // namespace pyecho
