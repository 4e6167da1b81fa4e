#include "core/sync/event_count.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace pyecho {
namespace {

using namespace std::chrono_literals;

constexpr auto kNotInterrupted = [] { return false; };

class EventCountTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  [[nodiscard]] static WaitStrategy strategy() { return {.spins = GetParam(), .yields = GetParam()}; }
  EventCount events_;
};

TEST_P(EventCountTest, a_wait_ends_at_its_target_its_deadline_or_an_interruption_in_this_order) {
  const auto interrupted = [] { return true; };
  EXPECT_EQ(events_.await(0, kNever, strategy(), kNotInterrupted), Outcome::kOk);
  EXPECT_EQ(events_.await(1, kNever, strategy(), interrupted), Outcome::kEmpty);
  EXPECT_EQ(events_.await(1, Clock::now() - 1s, strategy(), kNotInterrupted), Outcome::kTimeout);
  EXPECT_EQ(events_.await(2, Clock::now() + 2ms, strategy(), kNotInterrupted), Outcome::kTimeout);
  events_.advance(0);
  EXPECT_EQ(events_.read(), 0U);
  events_.advance(2);  // after a sleeper has timed out
  EXPECT_EQ(events_.await(2, Clock::now() - 1s, strategy(), kNotInterrupted), Outcome::kOk);
  EXPECT_EQ(events_.await(1, kNever, strategy(), interrupted), Outcome::kOk);
}

INSTANTIATE_TEST_SUITE_P(Spins, EventCountTest, testing::Values(0U, 16U));

}  // namespace
}  // namespace pyecho
