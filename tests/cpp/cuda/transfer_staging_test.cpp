#include <gtest/gtest.h>

#include "transfer_fixture.hpp"

namespace pyecho::cuda {
namespace {

using TransferStagingTest = TransferTest;

TEST_F(TransferStagingTest, pageable_sources_are_read_when_the_transfer_starts) {
  Source source(pageable(0), 1);
  Target target(kBytes);
  TransferEngine engine(device, 2);
  standin_hold(STANDIN_HOLD);
  start(engine, target, source);
  const std::vector<std::byte> content(source.data(), source.data() + source.size());
  fill(pageable(0), 99);
  standin_drain();
  std::copy(content.begin(), content.end(), pageable_memory_.begin());
  EXPECT_TRUE(target.has(source));
  EXPECT_EQ(source.times_let_go(), 0);
  standin_hold(STANDIN_RUN);
}

TEST_F(TransferStagingTest, one_transfer_may_mix_memory_of_both_kinds) {
  Source first(pageable(0).first(1), 1);
  Source second(pinned(0), 2);
  Source third(pageable(1).first(257), 3);
  Source fourth(pageable(2), 4);
  Target targets[4] = {Target(kBytes), Target(kBytes), Target(kBytes), Target(kBytes)};
  TransferEngine engine(device, 2);
  engine.start(
      std::vector{targets[0].from(first), targets[1].from(second), targets[2].from(third), targets[3].from(fourth)},
      nullptr);
  engine.drain();
  EXPECT_TRUE(targets[0].has(first));
  EXPECT_TRUE(targets[1].has(second));
  EXPECT_TRUE(targets[2].has(third));
  EXPECT_TRUE(targets[3].has(fourth));
  EXPECT_EQ(engine.staged_bytes(), 1 + 257 + kBytes);
  EXPECT_EQ(engine.bytes(), 1 + 257 + 2 * kBytes);
  EXPECT_EQ(standin_calls_of("cuMemHostRegister"), 1U + 1U) << "the fixture's memory, and one block for all";
  EXPECT_EQ(standin_unpinned_copies(), 0U);
}

TEST_F(TransferStagingTest, many_small_sources_have_room_side_by_side) {
  constexpr std::size_t kCount = 1000;
  std::vector<std::byte> sources(kCount);
  std::vector<std::byte> targets(kCount);
  fill(sources, 1);
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < kCount; ++i) {
    copies.push_back({.to = device_pointer(&targets[i]), .from = &sources[i], .size_bytes = 1});
  }
  TransferEngine engine(device, 1);
  engine.start(copies, nullptr);
  engine.drain();
  EXPECT_TRUE(is_filled(targets, 1));
  EXPECT_EQ(engine.staged_bytes(), kCount);
  EXPECT_EQ(standin_unpinned_copies(), 0U);
}

TEST_F(TransferStagingTest, any_mix_of_sizes_comes_to_rest) {
  std::vector<std::byte> memory(200'000);
  std::vector<std::byte> target(memory.size());
  TransferEngine engine(device, 3);
  Xoshiro256 random(5);
  std::uint64_t registered = 0;
  standin_hold(STANDIN_STEP);
  for (int i = 0; i < 1000; ++i) {
    if (i == 103) {
      registered = standin_calls_of("cuMemHostRegister");
    }
    if (i == 100) {
      engine.drain();  // so that three of the largest are under way together
    }
    const std::size_t size_bytes = i >= 100 && i < 103 ? memory.size() : (1 + random.below(10)) * 20'000;
    engine.start(only({.to = device_pointer(target.data()), .from = memory.data(), .size_bytes = size_bytes}), nullptr);
    EXPECT_LE(new_registered_ranges(), 1 + 3);
    if (i >= 100 && i < 103) {
      continue;
    }
    for (std::uint32_t step = random.below(8); step > 0; --step) {
      standin_step();
    }
    if (random.below(2) == 0) {
      engine.poll();
    }
  }
  EXPECT_EQ(standin_calls_of("cuMemHostRegister"), registered);
  standin_hold(STANDIN_RUN);
}

TEST_F(TransferStagingTest, a_block_is_not_used_again_before_its_copies_are_done) {
  Target targets[4] = {Target(kBytes), Target(kBytes), Target(kBytes), Target(kBytes)};
  Source sources[4] = {{pageable(0), 1}, {pageable(1), 2}, {pageable(2), 3}, {pageable(3), 4}};
  TransferEngine engine(device, 4);
  standin_hold(STANDIN_HOLD);
  for (std::size_t i = 0; i < 4; ++i) {
    start(engine, targets[i], sources[i]);
  }
  EXPECT_EQ(new_registered_ranges(), 1 + 4);
  standin_drain();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(targets[i].has(sources[i]));
  }
  standin_hold(STANDIN_RUN);
}

TEST_F(TransferStagingTest, where_nothing_can_be_pinned_the_driver_copies_from_pageable_memory) {
  Source first(pageable(0), 1);
  Source second(pinned(0), 2);
  Source third(pageable(1), 3);
  Target targets[3] = {Target(kBytes), Target(kBytes), Target(kBytes)};
  standin_set_register_limit(standin_registered_bytes());
  TransferEngine engine(device, 2);
  start(engine, targets[0], first);
  EXPECT_EQ(standin_unpinned_copies(), 1U);
  EXPECT_TRUE(targets[0].has(first)) << "such a copy is done when it was issued";
  start(engine, targets[1], second);
  start(engine, targets[2], third);
  EXPECT_EQ(standin_unpinned_copies(), 2U);
  engine.drain();
  EXPECT_TRUE(targets[1].has(second));
  EXPECT_TRUE(targets[2].has(third));
  EXPECT_EQ(engine.bytes(), 3 * kBytes);
  EXPECT_EQ(engine.staged_bytes(), 0U);
  EXPECT_EQ(standin_calls_of("cuMemHostRegister"), 1U + 1U) << "the fixture's, and one attempt";
  EXPECT_EQ(new_registered_ranges(), 1);
}

TEST_F(TransferStagingTest, whether_memory_is_pinned_is_asked_once) {
  Source small(pageable(0).first(10), 1);
  Source large(pinned(0), 2);
  Target targets[2] = {Target(kBytes), Target(kBytes)};
  TransferEngine engine(device, 1);
  // Each query in turn fails, so that its memory counts as unpinned. That is harmless: pinned memory is staged then, too.
  for (std::uint64_t nth = 1; nth <= 3; ++nth) {
    standin_fail_call("cuPointerGetAttribute", nth, kInvalidValue, 0);
    const std::uint64_t calls = standin_calls_of("cuPointerGetAttribute");
    engine.start(std::vector{targets[0].from(large), targets[1].from(small)}, nullptr);
    EXPECT_EQ(standin_calls_of("cuPointerGetAttribute"), calls + 2);
    engine.drain();
    EXPECT_TRUE(targets[0].has(large));
    EXPECT_TRUE(targets[1].has(small));
  }
}

}  // namespace
}  // namespace pyecho::cuda
