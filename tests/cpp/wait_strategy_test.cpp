#include "core/sync/wait_strategy.hpp"

#include <gtest/gtest.h>

namespace pyecho {
namespace {

static_assert(WaitStrategy::sleep().spins == 0);

TEST(WaitStrategy, spins_only_where_another_processor_could_act_meanwhile) {
  const bool alone = std::thread::hardware_concurrency() < 2;
  EXPECT_EQ(WaitStrategy::spin_then_sleep().spins == 0, alone);
}

TEST(WaitStrategy, relaxing_the_processor_returns) { relax_processor(); }

}  // namespace
}  // namespace pyecho
