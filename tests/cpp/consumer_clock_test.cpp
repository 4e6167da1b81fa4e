#include "core/stage/consumer_clock.hpp"

#include <gtest/gtest.h>

namespace pyecho {
namespace {

void pass_time() {
  for (const auto start = Clock::now(); Clock::now() == start;) {
  }
}

TEST(ConsumerClock, waiting_and_working_are_told_apart) {
  ConsumerClock clock;
  clock.enter();
  pass_time();
  clock.leave();
  const std::uint64_t waited = clock.wait_ns();
  EXPECT_GT(waited, 0U);
  EXPECT_EQ(clock.downstream_ns(), 0U);  // nothing was handed out before the first request
  pass_time();
  clock.enter();
  EXPECT_GT(clock.downstream_ns(), 0U);
  EXPECT_EQ(clock.wait_ns(), waited);
  clock.leave();
}

TEST(ConsumerClock, asking_again_is_the_same_request) {
  ConsumerClock clock;
  clock.enter();
  clock.leave();
  clock.enter();
  const std::uint64_t downstream = clock.downstream_ns();
  pass_time();
  clock.enter();
  EXPECT_EQ(clock.downstream_ns(), downstream);
  const std::uint64_t before = clock.wait_ns();
  clock.leave();
  EXPECT_GT(clock.wait_ns(), before);
}

}  // namespace
}  // namespace pyecho
