// An EchoBuffer with an adaptive factor whose source lags.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "support/run_buffer.hpp"

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
  put_blank(buffer, config.plan.capacity);
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

// Returns the number of batches that are planned.
std::size_t planned(const EchoBuffer& buffer) {
  std::size_t batches = 0;
  for (const auto& [segment, decisions] : buffer.view().log()) {
    batches += decisions.size();
  }
  return batches;
}

// A consumer that asked would have the batch made for it, so this one only looks at the log.
TEST(AdaptiveBuffer, a_batch_of_fresh_items_between_two_of_repeats_does_not_end_that_the_source_lags) {
  EchoConfig config = config_of(1);
  config.plan.capacity = config.plan.batch_size;
  config.plan.factor = 64;
  config.plan.min_uses = 1;
  EchoBuffer buffer(config);
  const auto await_planned = [&](std::size_t batches) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (planned(buffer) < batches && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return planned(buffer) >= batches;
  };
  Lease lease;
  put_blank(buffer, config.plan.batch_size);
  ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
  ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);  // of repeats: the source lags
  EXPECT_TRUE(await_planned(3));
  buffer.set_halted(true);  // else a batch may be made ahead of the consumer, and the source no longer lags
  put_blank(buffer, config.plan.batch_size);
  ASSERT_EQ(buffer.try_acquire(lease), Outcome::kOk);
  buffer.set_halted(false);
  EXPECT_TRUE(await_planned(4));
  ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
  EXPECT_EQ(lease.uses()[0].ordinal, 0U) << "a batch of fresh items";
  EXPECT_TRUE(await_planned(5));
}

}  // namespace
}  // namespace pyecho::test
