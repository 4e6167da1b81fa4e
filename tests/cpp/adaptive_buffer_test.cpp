// An EchoBuffer with an adaptive factor whose source lags.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "core/stage/echo_buffer.hpp"

namespace pyecho::test {
namespace {

EchoConfig config_of(std::uint32_t threads) {
  return {.plan = {.capacity = 24, .factor = 6, .seed = 3, .min_uses = 2, .max_age = 40, .batch_size = 8},
          .leaves = {sizeof(std::uint64_t)},
          .threads = threads};
}

TEST(AdaptiveBuffer, a_batch_of_repeats_is_ready_before_the_consumer_waits_for_it_while_the_source_lags) {
  EchoConfig config = config_of(1);
  config.plan.max_age = 0;
  EchoBuffer buffer(config);
  for (std::uint32_t item = 0; item < config.plan.capacity; ++item) {
    Reservation reservation{};
    ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
    buffer.commit(std::span(&reservation, 1));
  }
  int ready = 0;
  int asked = 0;
  bool lags = false;
  for (int batch = 0; batch < 12; ++batch) {
    Lease lease;
    Outcome outcome = Outcome::kEmpty;
    if (lags) {
      ++asked;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (outcome != Outcome::kOk && std::chrono::steady_clock::now() < end) {  // without waiting for one
        std::this_thread::yield();
        outcome = buffer.try_acquire(lease);
      }
      ready += outcome == Outcome::kOk ? 1 : 0;
    }
    if (outcome != Outcome::kOk) {
      ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
    }
    lags = std::ranges::any_of(lease.uses(), [&](const Use& use) { return use.ordinal >= config.plan.min_uses; });
  }
  EXPECT_EQ(ready, asked);
  EXPECT_GE(asked, 5);
}

}  // namespace
}  // namespace pyecho::test
