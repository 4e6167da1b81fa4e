#include "core/sync/index_ring.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace pyecho {
namespace {

template <class Ring>
class IndexRingTest : public testing::Test {};

using Rings = testing::Types<IndexRing<Threads::kOne, Threads::kOne>, IndexRing<Threads::kOne, Threads::kMany>,
                             IndexRing<Threads::kMany, Threads::kOne>, IndexRing<Threads::kMany, Threads::kMany>>;
TYPED_TEST_SUITE(IndexRingTest, Rings);

// Where a ring may start: at zero, at an odd place, where stamps wrap to 0 (lap 2^31), near 2^63.
std::vector<std::uint64_t> first_sequences(std::uint64_t capacity) {
  const std::uint64_t wrap = capacity << 31;
  const std::uint64_t full_wrap = capacity << 32;
  const std::uint64_t half = std::uint64_t{1} << 63;
  return {0, 3, wrap - capacity - 1, wrap - 1, full_wrap - capacity - 1, half - capacity - 1, half - 1};
}

TYPED_TEST(IndexRingTest, capacity_is_rounded_up_to_a_power_of_two) {
  for (const auto& [asked, given] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 1}, {2, 2}, {3, 4}, {5, 8}, {64, 64}}) {
    EXPECT_EQ(TypeParam(asked).capacity(), given);
  }
}

TYPED_TEST(IndexRingTest, an_empty_ring_gives_nothing_and_changes_nothing) {
  TypeParam ring(4);
  std::uint32_t index = 77;
  EXPECT_EQ(ring.try_pop(index), Outcome::kEmpty);
  EXPECT_EQ(index, 77U);
  EXPECT_EQ(ring.approx_size(), 0U);
}

TYPED_TEST(IndexRingTest, a_full_ring_takes_nothing_and_changes_nothing) {
  for (const std::uint32_t capacity : {1U, 2U, 8U}) {
    TypeParam ring(capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) {
      ASSERT_EQ(ring.try_push(i + 100), Outcome::kOk);
      ASSERT_EQ(ring.approx_size(), i + 1);
    }
    EXPECT_EQ(ring.try_push(999), Outcome::kFull);
    EXPECT_EQ(ring.try_push(999), Outcome::kFull);
    std::uint32_t index = 0;
    for (std::uint32_t i = 0; i < capacity; ++i) {
      ASSERT_EQ(ring.try_pop(index), Outcome::kOk);
      ASSERT_EQ(index, i + 100);
    }
    EXPECT_EQ(ring.try_pop(index), Outcome::kEmpty);
  }
}

TYPED_TEST(IndexRingTest, first_in_is_first_out_wherever_the_sequences_start) {
  for (const std::uint32_t capacity : {1U, 2U, 4U}) {
    for (const std::uint64_t first : first_sequences(capacity)) {
      TypeParam ring(capacity, first);
      std::uint32_t next_in = 0;
      std::uint32_t next_out = 0;
      // Fill levels rise and fall through many laps.
      for (std::uint32_t round = 0; round < 60; ++round) {
        while (next_in - next_out < 1 + round % capacity) {
          ASSERT_EQ(ring.try_push(next_in++), Outcome::kOk) << first;
        }
        if (next_in - next_out == capacity) {
          ASSERT_EQ(ring.try_push(0), Outcome::kFull) << first;
        }
        std::uint32_t index = 0;
        while (next_in - next_out > round / 2 % capacity) {
          ASSERT_EQ(ring.try_pop(index), Outcome::kOk) << first;
          ASSERT_EQ(index, next_out++) << first;
        }
        ASSERT_EQ(ring.approx_size(), next_in - next_out) << first;
      }
    }
  }
}

TYPED_TEST(IndexRingTest, every_32_bit_number_travels) {
  TypeParam ring(2);
  for (const std::uint32_t number : {0U, 1U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
    std::uint32_t index = 1;
    ASSERT_EQ(ring.try_push(number), Outcome::kOk);
    ASSERT_EQ(ring.try_pop(index), Outcome::kOk);
    EXPECT_EQ(index, number);
  }
}

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
