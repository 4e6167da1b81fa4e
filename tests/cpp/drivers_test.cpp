// Faults that were once between the drivers of an EchoBuffer. That its output is its plan: stress/echo_stress.cpp.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kDrivers[] = {0, 1, 2, 4};  // threads; 0: the consumer makes the batches

EchoConfig adaptive(std::uint32_t threads) {
  return {.plan = {.capacity = 24, .factor = 6, .seed = 3, .min_uses = 2, .max_age = 40, .batch_size = 8},
          .leaves = kLongItemLeaves,
          .threads = threads};
}

// Workers that repeat items while the consumer does not wait would fill their queue with repeats at the beginning.
TEST(Drivers, batches_made_ahead_of_the_consumer_have_only_fresh_items) {
  for (const std::uint32_t threads : {1U, 3U}) {
    EchoConfig config = adaptive(threads);
    config.plan.capacity = config.plan.batch_size;
    config.plan.min_uses = 1;
    config.prefetch = 4;
    EchoBuffer buffer(config);
    put_blank(buffer, 3 * config.plan.batch_size);
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

// Regression: put() slept although slots were free, once the consumer had fallen behind.
TEST(Drivers, the_slot_of_an_item_whose_last_use_was_handed_out_can_be_reserved_at_once) {
  for (const std::uint32_t threads : kDrivers) {
    EchoBuffer buffer({.plan = {.capacity = 64, .batch_size = 8}, .leaves = kItemLeaves, .threads = threads});
    std::uint64_t item = 0;
    while (item < buffer.input().slots()) {  // no more: batches made meanwhile free slots, which are the loop's below
      Reservation reservation{};
      ASSERT_EQ(buffer.input().reserve(reservation, Clock::now() + 20s), Outcome::kOk);
      put_item(buffer, reservation, item++);
    }
    for (int batch = 0; batch < 300; ++batch) {
      Lease lease;
      ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
      for (const Use& use : lease.uses()) {
        Reservation reservation{};
        if (use.last) {
          ASSERT_EQ(buffer.input().reserve(reservation, Clock::now() + 20s), Outcome::kOk);
          put_item(buffer, reservation, item++);
        }
      }
    }
  }
}

// Its rows have been copied before.
TEST(Drivers, a_batch_that_the_end_of_a_pass_completes_gives_its_slots_back) {
  EchoConfig config{.plan = {.batch_size = 8}, .leaves = kItemLeaves, .threads = 0};
  config.max_bytes = min_bytes_of(config);
  for (const bool keep : {false, true}) {
    if (keep) {
      keep_items(config);
      config.max_bytes = min_bytes_of(config);
    }
    EchoBuffer buffer(config);
    Lease lease;
    for (int pass = 0; pass < 200; ++pass) {
      const auto reserved = [&] {
        Reservation reservation{};
        EXPECT_EQ(buffer.input().reserve(reservation, Clock::now() + 20s), Outcome::kOk);
        return reservation;
      };
      for (std::uint64_t item = 0; item < 5; ++item) {
        ASSERT_FALSE(HasFailure()) << "pass " << pass;
        put_item(buffer, reserved(), item);
        if (item == 3) {
          ASSERT_EQ(buffer.try_acquire(lease), Outcome::kOk);
        }
      }
      ASSERT_EQ(buffer.try_acquire(lease), Outcome::kEmpty);
      buffer.input().end_pass(reserved());
      ASSERT_EQ(buffer.try_acquire(lease), Outcome::kOk);
      EXPECT_EQ(lease.rows(), 2U);
      ASSERT_EQ(buffer.try_acquire(lease), Outcome::kEnd);
    }
  }
}

TEST(Drivers, the_end_of_an_iteration_does_not_wait_for_items_of_the_next_one) {
  for (const std::uint32_t threads : kDrivers) {
    EchoBuffer buffer({.plan = {.batch_size = 8}, .leaves = kItemLeaves, .threads = threads});
    for (int pass = 0; pass < 20; ++pass) {
      std::thread producer([&] {
        put_items(buffer, 0, 5);
        std::this_thread::sleep_for(1ms);  // the consumer has taken everything, and waits
        Reservation mark{};
        ASSERT_EQ(buffer.input().reserve(mark, kNever), Outcome::kOk);
        buffer.input().end_pass(mark);
      });
      Lease lease;
      ASSERT_EQ(buffer.acquire(lease, Clock::now() + 20s), Outcome::kOk);
      ASSERT_EQ(buffer.acquire(lease, Clock::now() + 20s), Outcome::kOk);
      EXPECT_EQ(lease.rows(), 2U);
      ASSERT_EQ(buffer.acquire(lease, Clock::now() + 20s), Outcome::kEnd);
      producer.join();
    }
  }
}

// They are fewer than are announced together.
TEST(Drivers, slots_that_items_left_before_the_end_of_an_iteration_wake_a_producer_with_it) {
  EchoConfig config = adaptive(0);
  config.plan.capacity = 8;
  config.plan.batch_size = 4;
  config.plan.min_uses = 1;
  config.slots_ahead = 64;
  EchoBuffer buffer(config);
  SlotRing& input = buffer.input();
  std::thread producer([&] {
    Reservation reservation{};
    for (int item = 0; input.reserve(reservation, kNever) == Outcome::kOk; ++item) {
      item == 8 ? input.end_pass(reservation) : input.commit(reservation);
    }
  });
  const auto await_accepted = [&](std::uint64_t items) {
    const auto end = Clock::now() + 10s;
    while (input.accepted() < items && Clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    return input.accepted();
  };
  EXPECT_EQ(await_accepted(input.slots() - 1), input.slots() - 1) << "and the end of a pass";
  Lease lease;
  ASSERT_EQ(buffer.try_acquire(lease), Outcome::kOk);
  ASSERT_EQ(buffer.try_acquire(lease), Outcome::kOk);
  EXPECT_EQ(await_accepted(input.slots() + 4), input.slots() + 4) << "four items have left";
  ASSERT_EQ(buffer.try_acquire(lease), Outcome::kEnd);
  EXPECT_EQ(await_accepted(input.slots() + 8), input.slots() + 8) << "and four more";
  buffer.stop();
  producer.join();
}

TEST(Drivers, after_a_stop_the_end_is_no_longer_told) {
  for (const std::uint32_t threads : kDrivers) {
    EchoBuffer buffer({.leaves = kItemLeaves, .threads = threads});
    Lease lease;
    buffer.input().close();
    EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kEnd);
    EXPECT_EQ(buffer.try_acquire(lease), Outcome::kEnd);
    buffer.stop();
    EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kClosed);
    EXPECT_EQ(buffer.try_acquire(lease), Outcome::kClosed);
  }
}

}  // namespace
}  // namespace pyecho::test
