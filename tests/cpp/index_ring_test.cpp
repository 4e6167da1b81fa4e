#include "core/sync/index_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

namespace pyecho {
namespace {

// First sequences: zero, an odd place, where stamps wrap to 0 (lap 2^31), near 2^63.
std::vector<std::uint64_t> first_sequences(std::uint64_t capacity) {
  const std::uint64_t wrap = capacity << 31;
  const std::uint64_t full_wrap = capacity << 32;
  const std::uint64_t half = std::uint64_t{1} << 63;
  return {0, 3, wrap - capacity - 1, wrap - 1, full_wrap - capacity - 1, half - capacity - 1, half - 1};
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
      // Fill levels rise and fall through many laps.
      for (std::uint32_t round = 0; round < 60; ++round) {
        std::vector<std::uint32_t> in(push_group);
        std::vector<std::uint32_t> out(pop_group);
        for (std::uint32_t push = 0; push <= round % capacity; ++push) {
          std::iota(in.begin(), in.end(), next_in);
          const std::uint32_t room = capacity - (next_in - next_out);
          const std::uint32_t pushed = ring.try_push(in);
          ASSERT_EQ(pushed, std::min(static_cast<std::uint32_t>(in.size()), room)) << first;
          next_in += pushed;
        }
        for (std::uint32_t pop = 0; pop <= round / 2 % capacity; ++pop) {
          const std::uint32_t held = next_in - next_out;
          const std::uint32_t popped = ring.try_pop(out);
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
                         testing::Combine(testing::Values(0U, 1U, 3U, 20U), testing::Values(0U, 1U, 3U, 20U)));

}  // namespace
}  // namespace pyecho
