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

TEST_P(EventCountTest, a_target_already_reached_needs_no_wait) {
  EXPECT_EQ(events_.await(0, kNever, strategy(), kNotInterrupted), Outcome::kOk);
  events_.advance(3);
  EXPECT_EQ(events_.await(3, kNever, strategy(), kNotInterrupted), Outcome::kOk);
  EXPECT_EQ(events_.await(2, Clock::now() - 1s, strategy(), kNotInterrupted), Outcome::kOk);
}

TEST_P(EventCountTest, a_passed_deadline_is_a_timeout) {
  events_.advance();
  EXPECT_EQ(events_.await(2, Clock::now() - 1s, strategy(), kNotInterrupted), Outcome::kTimeout);
  EXPECT_EQ(events_.await(2, Clock::now() + 2ms, strategy(), kNotInterrupted), Outcome::kTimeout);
  events_.advance();  // a sleeper that gave up is no obstacle
  EXPECT_EQ(events_.await(2, kNever, strategy(), kNotInterrupted), Outcome::kOk);
}

TEST_P(EventCountTest, an_interruption_ends_the_wait_but_yields_to_the_count) {
  const auto interrupted = [] { return true; };
  EXPECT_EQ(events_.await(1, kNever, strategy(), interrupted), Outcome::kEmpty);
  events_.advance();
  EXPECT_EQ(events_.await(1, kNever, strategy(), interrupted), Outcome::kOk);
}

TEST_P(EventCountTest, advancing_by_nothing_changes_nothing) {
  events_.advance(0);
  EXPECT_EQ(events_.read(), 0U);
  events_.advance(2);
  EXPECT_EQ(events_.read(), 2U);
}

TEST_P(EventCountTest, two_threads_hand_over_many_times) {
  EventCount back;
  constexpr std::uint64_t kRounds = 3000;
  std::thread other([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      ASSERT_EQ(events_.await(round, kNever, strategy(), kNotInterrupted), Outcome::kOk);
      back.advance();
    }
  });
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    events_.advance();
    ASSERT_EQ(back.await(round, kNever, strategy(), kNotInterrupted), Outcome::kOk);
  }
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Spins, EventCountTest, testing::Values(0U, 16U));

}  // namespace
}  // namespace pyecho
