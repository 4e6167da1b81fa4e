#include "core/sync/atomic.hpp"

#include <gtest/gtest.h>

#include <array>

namespace pyecho {
namespace {

static_assert(sizeof(std::array<Sequence<>, 2>) == 2 * kCacheLineBytes && alignof(Sequence<>) == kCacheLineBytes);
static_assert(sizeof(Atomic<std::uint32_t>) == sizeof(std::uint32_t));
static_assert(!std::is_copy_constructible_v<Sequence<>>);

TEST(Atomic, operations_do_what_their_names_say) {
  Atomic<std::uint64_t> word(5);
  EXPECT_EQ(word.fetch_add_relaxed(1), 5U);
  EXPECT_EQ(word.fetch_add_acq_rel(static_cast<std::uint64_t>(-1)), 6U);
  EXPECT_EQ(word.fetch_or_acq_rel(8), 5U);
  EXPECT_EQ(word.exchange_acq_rel(2), 13U);
  std::uint64_t expected = 4;
  EXPECT_FALSE(word.try_claim_relaxed(expected, 9));
  EXPECT_EQ(expected, 2U);
  while (!word.try_replace_release(expected, 9)) {  // may fail spuriously
  }
  EXPECT_EQ(word.load_acquire(), 9U);
}

}  // namespace
}  // namespace pyecho
