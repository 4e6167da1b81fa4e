// An EchoBuffer with an adaptive factor, whose slots also become free between two uses: every driver, and the log.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "core/stage/echo_buffer.hpp"

namespace pyecho::test {
namespace {

constexpr std::uint64_t kManyItems = 3000;
constexpr std::size_t kWords = 16;  // of an example, each its number, so that a slot that is filled too early shows

EchoConfig config_of(std::uint32_t threads) {
  return {.plan = {.capacity = 24, .factor = 6, .seed = 3, .min_uses = 2, .max_age = 40, .batch_size = 8},
          .leaves = {kWords * sizeof(std::uint64_t)},
          .threads = threads};
}

// Sleeps now and then.
void dawdle(std::mt19937& random) {
  if (random() % 16 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
}

// Returns the items of all batches, one after the other.
std::vector<std::uint64_t> items_of(EchoBuffer& buffer, unsigned seed) {
  std::thread producer([&buffer, seed] {
    std::mt19937 random(seed);
    for (std::uint64_t item = 0; item < kManyItems; ++item) {
      Reservation reservation{};
      ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
      for (std::size_t word = 0; word < kWords; ++word) {
        std::memcpy(buffer.slot_data(reservation.slot) + word * sizeof(item), &item, sizeof(item));
      }
      buffer.commit(std::span(&reservation, 1));
      dawdle(random);
    }
    buffer.close();
  });
  std::mt19937 random(seed + 1);
  std::vector<std::uint64_t> items;
  Lease lease;
  while (buffer.acquire(lease, kNever) == Outcome::kOk) {
    for (std::uint32_t row = 0; row < lease.rows(); ++row) {
      std::vector<std::uint64_t> words(kWords);
      std::memcpy(words.data(), lease.data() + row * kWords * sizeof(std::uint64_t), kWords * sizeof(std::uint64_t));
      EXPECT_EQ(words, std::vector<std::uint64_t>(kWords, lease.uses()[row].source_index));
      items.push_back(words[0]);
    }
    lease.reset();
    dawdle(random);
  }
  producer.join();
  return items;
}

TEST(AdaptiveBuffer, uses_stay_in_bounds_and_the_log_gives_the_same_batches_with_any_driver) {
  for (const std::uint32_t threads : {0U, 1U, 2U, 4U}) {
    EchoBuffer live(config_of(threads));
    const std::vector<std::uint64_t> items = items_of(live, threads);
    std::map<std::uint64_t, int> uses;
    for (const std::uint64_t item : items) {
      ++uses[item];
    }
    EXPECT_EQ(uses.size(), kManyItems);
    for (const auto& [item, count] : uses) {
      EXPECT_TRUE(count >= 2 && count <= 6) << item << ": " << count;
    }
    for (const std::uint32_t others : {0U, 3U}) {
      EchoConfig config = config_of(others);
      config.plan.replay = live.log();
      EchoBuffer again(config);
      EXPECT_EQ(items_of(again, 100 + others), items);
      EXPECT_FALSE(again.diverged());
    }
  }
}

// Workers that repeat items while the consumer does not wait would fill their queue with repeats at the beginning.
TEST(AdaptiveBuffer, batches_made_ahead_of_the_consumer_have_only_fresh_items) {
  for (const std::uint32_t threads : {1U, 3U}) {
    EchoConfig config = config_of(threads);
    config.plan.capacity = config.plan.batch_size;
    config.plan.min_uses = 1;
    config.prefetch = 4;
    EchoBuffer buffer(config);
    const auto put = [&](std::uint32_t count) {
      for (; count > 0; --count) {
        Reservation reservation{};
        ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
        buffer.commit(std::span(&reservation, 1));
      }
    };
    put(3 * config.plan.batch_size);
    Lease lease;
    for (int batch = 0; batch < 3; ++batch) {
      ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
      for (const Use& use : lease.uses()) {
        EXPECT_EQ(use.ordinal, 0U) << batch;
      }
    }
    ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk) << "and for a consumer that waits, repeats";
    EXPECT_EQ(lease.uses()[0].ordinal, 1U);
    buffer.stop();
  }
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
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the consumer's step
      ++asked;
      ready += (outcome = buffer.try_acquire(lease)) == Outcome::kOk ? 1 : 0;
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
