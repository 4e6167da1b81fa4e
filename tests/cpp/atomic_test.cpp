#include "core/sync/atomic.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace pyecho {
namespace {

static_assert(sizeof(Sequence<>) == kCacheLineBytes);
static_assert(alignof(Sequence<>) == kCacheLineBytes);
static_assert(sizeof(Atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(!std::is_copy_constructible_v<Sequence<>>);

TEST(Sequence, neighbours_share_no_cache_line) {
  const std::array<Sequence<>, 2> pair;
  const auto distance = reinterpret_cast<std::uintptr_t>(&pair[1]) - reinterpret_cast<std::uintptr_t>(&pair[0]);
  EXPECT_EQ(distance, kCacheLineBytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&pair[0]) % kCacheLineBytes, 0U);
}

TEST(Atomic, starts_at_zero_or_at_its_initial_value) {
  EXPECT_EQ(Atomic<std::uint64_t>().load_relaxed(), 0U);
  EXPECT_EQ(Atomic<std::uint64_t>(7).load_acquire(), 7U);
}

TEST(Atomic, read_modify_writes_return_the_value_before) {
  Atomic<std::uint64_t> word(5);
  EXPECT_EQ(word.fetch_add_relaxed(1), 5U);
  EXPECT_EQ(word.fetch_add_acq_rel(std::numeric_limits<std::uint64_t>::max()), 6U);
  EXPECT_EQ(word.fetch_or_acq_rel(8), 5U);
  EXPECT_EQ(word.exchange_acq_rel(2), 13U);
  EXPECT_EQ(word.load_acquire(), 2U);
}

TEST(Atomic, a_failed_claim_reports_the_value_it_found) {
  Atomic<std::uint64_t> word(5);
  std::uint64_t expected = 4;
  EXPECT_FALSE(word.try_claim_relaxed(expected, 9));
  EXPECT_EQ(expected, 5U);
  while (!word.try_replace_release(expected, 9)) {  // may fail spuriously
  }
  EXPECT_EQ(word.load_relaxed(), 9U);
}

}  // namespace
}  // namespace pyecho
