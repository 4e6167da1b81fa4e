#include <gtest/gtest.h>

#include "core/stage/clocks.hpp"

namespace pyecho {
namespace {

void pass_time() {
  for (const auto start = Clock::now(); Clock::now() == start;) {
  }
}

TEST(ConsumerClock, waiting_and_working_are_told_apart_and_asking_again_is_the_same_request) {
  ConsumerClock clock;
  clock.enter();
  pass_time();
  clock.leave();
  const std::uint64_t waited = clock.wait_ns();
  EXPECT_GT(waited, 0U);
  EXPECT_EQ(clock.downstream_ns(), 0U);  // nothing was handed out before the first request
  pass_time();
  clock.enter();
  const std::uint64_t downstream = clock.downstream_ns();
  EXPECT_GT(downstream, 0U);
  EXPECT_EQ(clock.wait_ns(), waited);
  pass_time();
  clock.enter();
  EXPECT_EQ(clock.downstream_ns(), downstream);
  clock.leave();
  EXPECT_GT(clock.wait_ns(), waited);
}

TEST(ConsumerClock, time_between_iterations_is_neither) {
  ConsumerClock clock;
  clock.enter();
  clock.leave();
  clock.enter();
  clock.end_iteration();
  const std::uint64_t waited = clock.wait_ns();
  const std::uint64_t downstream = clock.downstream_ns();
  pass_time();
  clock.enter();
  EXPECT_EQ(clock.wait_ns(), waited);
  EXPECT_EQ(clock.downstream_ns(), downstream);
}

}  // namespace
}  // namespace pyecho
