// Configurations, sizes and counts of an EchoBuffer. Its output is tested in drivers_test.cpp.
#include "core/stage/echo_buffer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

TEST(EchoBuffer, configurations_that_cannot_be_are_refused) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  std::vector<EchoConfig> wrong;
  for (const double factor : {0.5, -1.0, std::nan(""), std::numeric_limits<double>::infinity(), 0x1.0p32}) {
    wrong.push_back({.plan = {.factor = factor}, .leaves = {8}});
  }
  wrong.push_back({.plan = {.batch_size = 0}, .leaves = {8}});
  wrong.push_back({.plan = {.capacity = 0}, .leaves = {8}});
  wrong.push_back({.leaves = {8}, .prefetch = 0});
  wrong.push_back({.leaves = {8}, .slots_ahead = 0});
  wrong.push_back({.plan = {.capacity = 3, .unique_in_batch = true, .batch_size = 4}, .leaves = {8}});
  for (const std::uint32_t capacity : {1U << 29, 1U << 31, kMost - 2, kMost}) {
    wrong.push_back({.plan = {.capacity = capacity}, .leaves = {8}});
  }
  wrong.push_back({.plan = {.capacity = 1U << 28, .factor = 0x1.0p31}, .leaves = {8}});
  wrong.push_back({.leaves = {8}, .prefetch = kMost});
  wrong.push_back({.leaves = {8}, .prefetch = kMost, .threads = 0, .held = 1});
  wrong.push_back({.leaves = {8}, .held = kMost});
  wrong.push_back({.plan = {.batch_size = 4}, .leaves = {8}, .steps = std::numeric_limits<std::uint64_t>::max() / 2});
  for (const EchoConfig& config : wrong) {
    EXPECT_THROW(EchoBuffer{config}, std::invalid_argument) << &config - wrong.data();
    EXPECT_THROW(static_cast<void>(EchoBuffer::min_bytes(config)), std::invalid_argument) << &config - wrong.data();
  }
  EXPECT_THROW(EchoBuffer({.plan = {.capacity = 1000}, .leaves = {std::size_t{1} << 50}}), std::length_error);
  EXPECT_THROW(EchoBuffer({.leaves = {8}, .max_bytes = 4096}), std::length_error);
  EXPECT_THROW(EchoBuffer({.plan = {.batch_size = kMost}, .leaves = {}, .prefetch = 1U << 29}), std::length_error);
}

TEST(EchoBuffer, small_examples_are_taken_further_ahead_up_to_another_capacity) {
  const auto taken_ahead = [](std::size_t row_bytes, std::uint32_t capacity, bool limited) {
    EchoConfig config{.plan = {.capacity = capacity}, .leaves = {row_bytes}, .prefetch = 1, .threads = 0};
    if (limited) {
      config.max_bytes = EchoBuffer::min_bytes(config);
    }
    EchoBuffer buffer(config);
    std::uint64_t items = 0;
    std::array<Reservation, 64> group{};
    for (std::uint32_t count = 0; buffer.try_reserve(group, count) == Outcome::kOk; items += count) {
    }
    return items;
  };
  EXPECT_EQ(taken_ahead(1 << 16, 1000, false), 1000U + 64 + 32);  // 4 MiB of items, and the items of the batches ahead
  EXPECT_EQ(taken_ahead(64, 100, false), 100U + 100 + 32);
  EXPECT_EQ(taken_ahead(64, 100, true), 100U + 2);
}

TEST(EchoBuffer, leaves_of_every_size_arrive_whole_alone_and_together) {
  std::vector<LeafFormat> all{8};
  for (std::size_t size_bytes = 0; size_bytes <= 140; ++size_bytes) {
    all.push_back(size_bytes);
    EchoConfig config{.plan = {.capacity = 20, .batch_size = 9}, .leaves = {8, size_bytes}, .threads = 0};
    EXPECT_EQ(run_buffer(config, {40}), plan_output(config, {40})) << size_bytes;
  }
  EchoConfig config{.plan = {.capacity = 20, .batch_size = 9}, .leaves = all, .with_info = true};
  EXPECT_EQ(run_buffer(config, {40}), plan_output(config, {40}));
}

// 100 MB of slots and 80 MB of batches exceed the share of most caches, so copies are streamed.
TEST(EchoBuffer, memory_that_outgrows_the_caches_holds_what_was_put) {
  EchoConfig config{.plan = {.capacity = 400, .batch_size = 80}, .leaves = {8, 200'001}, .with_info = true};
  for (const std::uint32_t threads : {0U, 2U}) {
    config.threads = threads;
    EXPECT_EQ(run_buffer(config, {130}), plan_output(config, {130}));
  }
}

TEST(EchoBuffer, stats_add_up_and_with_drop_last_short_batches_do_not_count) {
  for (const bool drop_last : {false, true}) {
    EchoConfig config{
        .plan = {.capacity = 5, .factor = 3.0, .batch_size = 8}, .leaves = kItemLeaves, .drop_last = drop_last};
    EchoBuffer buffer(config);
    EXPECT_EQ(run_buffer(buffer, {50}, 1).back().back().size(), 6U);  // the caller must drop it
    Reservation reservation{};
    EXPECT_EQ(buffer.reserve(reservation, kNever), Outcome::kClosed);
    const EchoStats stats = buffer.stats();
    EXPECT_EQ(stats.fresh, 50U);
    EXPECT_EQ(stats.emitted, drop_last ? 144U : 150U);
    EXPECT_EQ(stats.batches, drop_last ? 18U : 19U);
    EXPECT_EQ(stats.bytes_gathered, stats.emitted * 35U);
    EXPECT_EQ(stats.resident, 0U);
    EXPECT_EQ(stats.outstanding_leases, 0U);
    EXPECT_EQ(stats.grown_blocks, 0U);
    EXPECT_GT(stats.consumer_wait_ns, 0U);
  }
}

}  // namespace
}  // namespace pyecho::test
