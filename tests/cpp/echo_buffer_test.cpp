// Configurations and sizes of an EchoBuffer. That its output is its plan: stress/echo_stress.cpp.
#include "core/stage/echo_buffer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
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
    EXPECT_THROW(static_cast<void>(min_bytes_of(config)), std::invalid_argument) << &config - wrong.data();
  }
  EXPECT_THROW(EchoBuffer({.plan = {.capacity = 1000}, .leaves = {std::size_t{1} << 50}}), std::length_error);
  EXPECT_THROW(EchoBuffer({.leaves = {8}, .max_bytes = 4096}), std::length_error);
  EXPECT_THROW(EchoBuffer({.plan = {.batch_size = kMost}, .leaves = {}, .prefetch = 1U << 29}), std::length_error);
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

}  // namespace
}  // namespace pyecho::test
