#include "core/sync/index_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include "support/ring_calls.hpp"

namespace pyecho {
namespace {

// First sequences: zero, an odd place, where stamps wrap to 0 (lap 2^31), near 2^63.
std::vector<std::uint64_t> first_sequences(std::uint64_t capacity) {
  const std::uint64_t wrap = capacity << 31;
  const std::uint64_t full_wrap = capacity << 32;
  const std::uint64_t half = std::uint64_t{1} << 63;
  return {0, 3, wrap - capacity - 1, wrap - 1, full_wrap - capacity - 1, half - capacity - 1, half - 1};
}

TEST(IndexRing, calls_that_move_nothing_change_nothing) {
  IndexRing<> ring(2);
  std::uint32_t index = 77;
  EXPECT_EQ(ring.try_pop(index), Outcome::kEmpty);
  EXPECT_EQ(index, 77U);
  EXPECT_EQ(ring.try_push(std::span<const std::uint32_t>()), 0U);
  ASSERT_EQ(ring.try_push(5), Outcome::kOk);
  EXPECT_EQ(ring.try_pop(std::span<std::uint32_t>()), 0U);
  EXPECT_EQ(ring.approx_size(), 1U);
}

// Numbers per push and per pop.
class IndexRingCalls : public testing::TestWithParam<std::tuple<std::uint32_t, std::uint32_t>> {};

TEST_P(IndexRingCalls, move_all_there_is_room_for_first_in_first_out_wherever_the_sequences_start) {
  const auto [push_group, pop_group] = GetParam();
  for (const std::uint32_t capacity : {1U, 2U, 4U, 8U}) {
    for (const std::uint64_t first : first_sequences(capacity)) {
      IndexRing<> ring(capacity, first);
      std::uint32_t next_in = 0xFFFFFFE0U;  // passes through 0
      std::uint32_t next_out = next_in;
      // Fill levels rise and fall through many laps. Every fourth round moves one number per call.
      for (std::uint32_t round = 0; round < 60; ++round) {
        std::vector<std::uint32_t> in(round % 4 == 3 ? 1 : push_group);
        std::vector<std::uint32_t> out(round % 4 == 3 ? 1 : pop_group);
        for (std::uint32_t push = 0; push <= round % capacity; ++push) {
          std::iota(in.begin(), in.end(), next_in);
          const std::uint32_t room = capacity - (next_in - next_out);
          const std::uint32_t pushed = test::push_some(ring, in);
          ASSERT_EQ(pushed, std::min(static_cast<std::uint32_t>(in.size()), room)) << first;
          next_in += pushed;
        }
        ASSERT_EQ(ring.approx_size(), next_in - next_out) << first;
        for (std::uint32_t pop = 0; pop <= round / 2 % capacity; ++pop) {
          const std::uint32_t held = next_in - next_out;
          const std::uint32_t popped = test::pop_some(ring, out);
          ASSERT_EQ(popped, std::min(static_cast<std::uint32_t>(out.size()), held)) << first;
          for (std::uint32_t i = 0; i < popped; ++i) {
            ASSERT_EQ(out[i], next_out++) << first;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, IndexRingCalls,
                         testing::Combine(testing::Values(1U, 3U, 20U), testing::Values(1U, 3U, 20U)));

TEST(RingGeometry, maps_sequences_to_cells_and_stamps) {
  const RingGeometry geometry(5);
  EXPECT_EQ(geometry.cells(), 8U);
  EXPECT_EQ(geometry.cell_of(17), 1U);
  EXPECT_EQ(geometry.empty_stamp(17), 4U);
  EXPECT_EQ(geometry.empty_stamp(17 + 8), geometry.empty_stamp(17) + 2);
  EXPECT_EQ(geometry.empty_stamp(std::uint64_t{8} << 31), 0U);
  EXPECT_EQ(RingGeometry(1).cell_of(12345), 0U);
  EXPECT_EQ(RingGeometry(1U << 31).cells(), 1U << 31);
}

TEST(StampedIndex, packs_and_unpacks) {
  const StampedIndex cell{0xDEADBEEFU, 0xFFFFFFFFU};
  const StampedIndex same = StampedIndex::unpack(cell.pack());
  EXPECT_EQ(same.stamp, cell.stamp);
  EXPECT_EQ(same.index, cell.index);
}

}  // namespace
}  // namespace pyecho
