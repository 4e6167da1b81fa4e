// What comes out of an EchoBuffer: exactly the planner's draws, whatever the threads do.
#include "core/stage/echo_buffer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "support/drive_planner.hpp"
#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

PlannerConfig planner_of(const EchoBufferConfig& config) {
  return {.capacity = config.capacity,
          .slots = config.capacity + 1,
          .factor = config.factor,
          .seed = config.seed,
          .epoch = config.epoch,
          .unique_in_batch = config.unique_in_batch};
}

EchoBufferConfig random_config(Xoshiro256& random) {
  const double factors[] = {1.0, 1.0, 1.5, 2.0, 2.9, 4.0, 11.0};
  EchoBufferConfig config;
  config.leaf_bytes = random.below(2) == 0 ? kItemLeaves : kLongItemLeaves;
  config.batch_rows = 1 + random.below(random.below(2) == 0 ? 4 : 40);
  config.unique_in_batch = random.below(3) == 0;
  config.capacity = 1 + random.below(50) + (config.unique_in_batch ? config.batch_rows - 1 : 0);
  if (!config.unique_in_batch && random.below(4) == 0) {
    config.capacity = 1;
  }
  config.factor = factors[random.below(7)];
  config.seed = random.next();
  config.epoch = random.below(5);
  config.with_info = true;
  config.prefetch = 1 + random.below(4);
  config.drop_last = random.below(4) == 0;
  return config;
}

std::string describe(const EchoBufferConfig& config) {
  return "rows " + std::to_string(config.batch_rows) + ", capacity " + std::to_string(config.capacity) + ", factor " +
         std::to_string(config.factor) + ", prefetch " + std::to_string(config.prefetch) + ", threads " +
         std::to_string(config.threads) + (config.leaf_bytes == kLongItemLeaves ? ", long items" : "") +
         (config.unique_in_batch ? ", unique" : "") + (config.drop_last ? ", drop_last" : "");
}

TEST(EchoBuffer, output_is_the_plan_for_every_number_of_threads_and_any_timing) {
  Xoshiro256 random(2024);
  for (int round = 0; round < 60; ++round) {
    EchoBufferConfig config = random_config(random);
    const std::uint64_t items = random.below(300);
    Batches expected = drive_planner(planner_of(config), items, config.batch_rows);
    expect_exact(expected, planner_of(config), items);
    if (config.drop_last) {
      std::erase_if(expected, [&](const auto& batch) { return batch.size() < config.batch_rows; });
    }
    for (const std::uint32_t threads : {1U, 2U, 4U}) {
      config.threads = threads;
      ASSERT_EQ(run_buffer(config, items), expected) << describe(config);
      ASSERT_EQ(run_buffer(config, items, 1 + random.below(16)), expected) << describe(config);
    }
  }
}

TEST(EchoBuffer, large_examples_are_copied_while_the_source_is_awaited) {
  EchoBufferConfig config{.leaf_bytes = {8, 300'000}, .batch_rows = 6, .capacity = 4, .with_info = true};
  const Batches expected = drive_planner(planner_of(config), 20, 6);
  for (const std::uint32_t threads : {1U, 2U}) {
    config.threads = threads;
    EXPECT_EQ(run_buffer(config, 20, 16), expected);
  }
}

// 100 MB of slots and 80 MB of batches: more than the share of most caches, so copies are streamed.
TEST(EchoBuffer, memory_that_outgrows_the_caches_holds_what_was_put) {
  EchoBufferConfig config{.leaf_bytes = {8, 200'001}, .batch_rows = 80, .capacity = 400, .with_info = true};
  const Batches expected = drive_planner(planner_of(config), 130, 80);
  for (const std::uint32_t threads : {1U, 2U}) {
    config.threads = threads;
    EXPECT_EQ(run_buffer(config, 130), expected);
  }
}

TEST(EchoBuffer, the_last_batch_is_short_or_dropped) {
  EchoBufferConfig config{.leaf_bytes = kItemLeaves, .batch_rows = 4, .factor = 1.0, .with_info = true};
  Batches batches = run_buffer(config, 10);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches.back().size(), 2U);
  config.drop_last = true;
  EXPECT_EQ(run_buffer(config, 10).size(), 2U);
  EXPECT_EQ(run_buffer(config, 8).size(), 2U);
  EXPECT_EQ(run_buffer(config, 3).size(), 0U);
}

TEST(EchoBuffer, an_empty_source_ends_without_a_batch) {
  for (const std::uint32_t threads : {1U, 4U}) {
    EXPECT_TRUE(run_buffer({.leaf_bytes = kItemLeaves, .threads = threads}, 0).empty());
  }
}

TEST(EchoBuffer, the_end_is_repeated) {
  EchoBuffer buffer({.leaf_bytes = kItemLeaves});
  buffer.close();
  EXPECT_TRUE(buffer.closed());
  Lease lease;
  EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kEnd);
  EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kEnd);
  EXPECT_EQ(buffer.try_acquire(lease), Outcome::kEnd);
  Reservation reservation{};
  EXPECT_EQ(buffer.reserve(reservation, kNever), Outcome::kClosed);
  EXPECT_EQ(buffer.try_reserve(reservation), Outcome::kClosed);
}

TEST(EchoBuffer, aborted_reservations_leave_no_item) {
  const EchoBufferConfig config{.leaf_bytes = kItemLeaves, .batch_rows = 3, .factor = 2.0, .with_info = true};
  EchoBuffer buffer(config);
  std::thread producer([&] {
    for (std::uint64_t item = 0; item < 100; ++item) {
      Reservation reservation{};
      ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
      buffer.abort(reservation);
      put_items(buffer, item, item + 1);
    }
    buffer.close();
  });
  Batches batches;
  for (Lease lease; buffer.acquire(lease, kNever) == Outcome::kOk;) {
    batches.push_back(rows_of(lease));
  }
  producer.join();
  EXPECT_EQ(batches, drive_planner(planner_of(config), 100, 3));
}

TEST(EchoBuffer, stats_add_up) {
  EchoBufferConfig config{.leaf_bytes = kItemLeaves, .batch_rows = 8, .capacity = 5, .factor = 3.0};
  EchoBuffer buffer(config);
  std::thread producer([&] {
    put_items(buffer, 0, 50);
    buffer.close();
  });
  for (Lease lease; buffer.acquire(lease, kNever) == Outcome::kOk;) {
    EXPECT_EQ(buffer.stats().outstanding_leases, 1U);
  }
  producer.join();
  const EchoBufferStats stats = buffer.stats();
  EXPECT_EQ(stats.fresh, 50U);
  EXPECT_EQ(stats.emitted, 150U);
  EXPECT_EQ(stats.batches, 19U);
  EXPECT_EQ(stats.bytes_gathered, 150U * 35U);
  EXPECT_EQ(stats.resident, 0U);
  EXPECT_EQ(stats.outstanding_leases, 0U);
  EXPECT_EQ(stats.grown_blocks, 0U);
  EXPECT_GT(stats.consumer_wait_ns, 0U);
}

TEST(EchoBuffer, min_bytes_has_room_for_all_slots_and_batches_and_for_no_more) {
  EchoBufferConfig config{.leaf_bytes = {5000}, .batch_rows = 7, .capacity = 9};
  config.max_bytes = EchoBuffer::min_bytes(config);
  EchoBuffer buffer(config);
  const std::size_t batches = buffer.stats().batch_blocks * HostMemory::rounded_bytes(buffer.layout().batch_bytes());
  EXPECT_GE(config.max_bytes, 9 * buffer.layout().slot_bytes() + batches);
  std::thread producer([&] {
    Reservation reservation{};
    while (buffer.reserve(reservation, kNever) == Outcome::kOk) {
      buffer.commit(reservation);
    }
  });
  std::vector<Lease> hoard;
  Lease lease;
  while (buffer.acquire(lease, kNever) == Outcome::kOk) {
    hoard.push_back(std::move(lease));
  }
  EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kExhausted);
  EXPECT_EQ(buffer.stats().grown_blocks, 0U);
  EXPECT_EQ(hoard.size(), buffer.stats().batch_blocks);
  buffer.stop();
  producer.join();
}

TEST(EchoBuffer, small_batches_are_made_further_ahead_within_half_of_what_max_bytes_leaves) {
  const auto blocks = [](std::size_t row_bytes, std::size_t spare_bytes) {
    EchoBufferConfig config{.leaf_bytes = {row_bytes}, .batch_rows = 16, .capacity = 4, .held = 1};
    if (spare_bytes != kUnlimited) {
      config.max_bytes = EchoBuffer::min_bytes(config) + spare_bytes;
    }
    return EchoBuffer(config).stats().batch_blocks;
  };
  const std::uint64_t worker_and_held = 2;
  EXPECT_EQ(blocks(64, kUnlimited), 32 + worker_and_held);
  EXPECT_EQ(blocks(65536, kUnlimited), 4 + worker_and_held);
  EXPECT_EQ(blocks(1 << 20, kUnlimited), 2 + worker_and_held);
  EXPECT_EQ(blocks(64, 0), 2 + worker_and_held);
  // A further batch takes one block of a page, and 8 slots of 64 bytes that may begin another page.
  EXPECT_GE(blocks(64, 8 * 4096), 3 + worker_and_held);
  EXPECT_LE(blocks(64, 8 * 4096), 6 + worker_and_held);
}

TEST(EchoBuffer, small_examples_are_taken_further_ahead_up_to_another_capacity) {
  const auto taken_ahead = [](std::size_t row_bytes, std::uint32_t capacity, bool limited) {
    EchoBufferConfig config{.leaf_bytes = {row_bytes}, .capacity = capacity, .prefetch = 1, .held = 1};
    if (limited) {
      config.max_bytes = EchoBuffer::min_bytes(config);
    }
    EchoBuffer buffer(config);
    std::uint64_t items = 0;  // until the pool and all slots ahead of it are full: the consumer takes nothing
    for (Reservation reservation{};
         buffer.reserve(reservation, Clock::now() + std::chrono::milliseconds(50)) == Outcome::kOk; ++items) {
      buffer.commit(reservation);
    }
    return items;
  };
  EXPECT_GE(taken_ahead(1 << 16, 1000, false), 1000U + 64);
  EXPECT_LE(taken_ahead(1 << 16, 1000, false), 1000U + 64 + 4 * 64);  // and what the batches ahead used up
  EXPECT_GE(taken_ahead(64, 100, false), 200U);
  EXPECT_LE(taken_ahead(64, 100, true), 128U);  // what the pages that are needed have room for
}

}  // namespace
}  // namespace pyecho::test
