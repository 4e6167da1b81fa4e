#include "cuda/transfer_engine.hpp"

#include <gtest/gtest.h>

#include <future>

#include "transfer_fixture.hpp"

namespace pyecho::cuda {
namespace {

using namespace std::chrono_literals;

using TransferEngineTest = TransferTest;

TEST_F(TransferEngineTest, making_one_costs_no_driver_call) {
  const std::uint64_t calls = standin_calls();
  {
    const TransferEngine engine(device, 2);
  }
  EXPECT_EQ(standin_calls(), calls);
}

TEST_F(TransferEngineTest, events_can_be_made_in_advance) {
  Source sources[3] = {{pinned(0), 1}, {pinned(1), 2}, {pageable(0), 3}};
  Target target(kBytes);
  {
    TransferEngine engine(device, 2, 3);
    EXPECT_EQ(new_live_events(), 5);
    std::vector<std::shared_ptr<const Transfer>> kept{engine.mark(), engine.mark()};
    for (Source& source : sources) {
      kept.push_back(start(engine, target, source));
    }
    EXPECT_EQ(new_live_events(), 5);
    kept.push_back(engine.mark());
    EXPECT_EQ(new_live_events(), 6) << "more than that are made when they are needed";
  }
  EXPECT_EQ(new_live_events(), 0);
}

TEST_F(TransferEngineTest, an_engine_that_cannot_be_made_leaves_nothing) {
  for (const std::uint64_t nth : {1U, 2U, 5U}) {
    standin_fail_call("cuEventCreate", nth, kOutOfMemory, 0);
    EXPECT_THROW(TransferEngine(device, 2, 3), CudaError);
    EXPECT_EQ(new_live_events(), 0);
  }
}

TEST_F(TransferEngineTest, data_arrives_from_pinned_and_from_pageable_memory) {
  Source first(pinned(0), 1);
  Source second(pageable(0), 2);
  Target to_first(kBytes);
  Target to_second(kBytes);
  TransferEngine engine(device, 2);
  start(engine, to_first, first);
  start(engine, to_second, second);
  engine.drain();
  EXPECT_TRUE(to_first.has(first));
  EXPECT_TRUE(to_second.has(second));
  EXPECT_EQ(engine.bytes(), 2 * kBytes);
  EXPECT_EQ(engine.staged_bytes(), kBytes);
  EXPECT_EQ(standin_copied_bytes(), 2 * kBytes);
  EXPECT_EQ(standin_unpinned_copies(), 0U);
}

TEST_F(TransferEngineTest, the_source_is_kept_until_its_copies_are_done) {
  Source source(pinned(0), 1);
  Target target(kBytes);
  TransferEngine engine(device, 2);
  standin_hold(STANDIN_HOLD);
  const auto transfer = start(engine, target, source);
  engine.poll();
  EXPECT_EQ(source.times_let_go(), 0);
  EXPECT_FALSE(transfer->done());
  ASSERT_EQ(standin_step(), 1);
  EXPECT_TRUE(target.has(source));
  engine.poll();
  EXPECT_EQ(source.times_let_go(), 0) << "the copy is done, but not yet the record of that";
  ASSERT_EQ(standin_step(), 1);
  EXPECT_FALSE(transfer->done()) << "nobody has looked";
  engine.poll();
  EXPECT_TRUE(transfer->done());
  EXPECT_EQ(source.times_let_go(), 1);
}

TEST_F(TransferEngineTest, its_end_waits_for_all_and_lets_go_of_all) {
  Source first(pinned(0), 1);
  Source second(pageable(0), 2);
  Target to_first(kBytes);
  Target to_second(kBytes);
  std::shared_ptr<const Transfer> outlives_the_engine;
  std::jthread helper;
  {
    TransferEngine engine(device, 4);
    standin_hold(STANDIN_HOLD);
    outlives_the_engine = start(engine, to_first, first);
    start(engine, to_second, second);
    helper = let_go_soon();
  }
  EXPECT_TRUE(to_first.has(first));
  EXPECT_TRUE(to_second.has(second));
  EXPECT_EQ(first.times_let_go(), 1);
  EXPECT_EQ(second.times_let_go(), 1);
  EXPECT_TRUE(outlives_the_engine->done());
  EXPECT_GT(new_live_events(), 0);
}

TEST_F(TransferEngineTest, at_most_depth_transfers_are_under_way) {
  for (const unsigned depth : {1U, 2U, 3U}) {
    std::vector<std::unique_ptr<Source>> sources;
    Target target(kBytes);
    TransferEngine engine(device, depth);
    standin_hold(STANDIN_STEP);
    for (std::size_t i = 0; i < 4; ++i) {
      start(engine, target, *sources.emplace_back(std::make_unique<Source>(pinned(i), i)));
      EXPECT_LE(standin_pending(), 2 * depth);
      EXPECT_EQ(
          std::count_if(sources.begin(), sources.end(), [](const auto& source) { return source->times_let_go() == 0; }),
          std::min<std::ptrdiff_t>(depth, static_cast<std::ptrdiff_t>(i) + 1));
    }
    standin_hold(STANDIN_RUN);
    engine.drain();
  }
}

TEST_F(TransferEngineTest, start_blocks_while_depth_transfers_are_under_way) {
  Source first(pinned(0), 1);
  Source second(pinned(1), 2);
  Target target(kBytes);
  TransferEngine engine(device, 1);
  standin_hold(STANDIN_HOLD);
  start(engine, target, first);
  auto started = std::async(std::launch::async, [&] { return start(engine, target, second); });
  EXPECT_EQ(started.wait_for(30ms), std::future_status::timeout);
  standin_hold(STANDIN_RUN);
  started.get();
  EXPECT_EQ(first.times_let_go(), 1);
  engine.drain();
  EXPECT_TRUE(target.has(second));
}

TEST_F(TransferEngineTest, copies_of_no_bytes_are_none) {
  TransferEngine engine(device, 2);
  Source source(pageable(0).first(0), 1);
  Target target(1);
  std::vector<Copy> copies(3, target.from(source));
  copies.push_back({.to = 0, .from = nullptr, .size_bytes = 0});
  const auto transfer = engine.start(copies, source.hold());
  const auto of_nothing = engine.start({}, nullptr);
  engine.drain();
  EXPECT_TRUE(transfer->done());
  EXPECT_TRUE(of_nothing->done());
  EXPECT_EQ(source.times_let_go(), 1);
  EXPECT_EQ(engine.bytes(), 0U);
  EXPECT_EQ(standin_calls_of("cuMemcpyHtoDAsync"), 0U);
}

TEST_F(TransferEngineTest, each_device_has_its_own_stream) {
  const Device& other = Device::get(1);
  Source first(pinned(0), 1);
  Source second(pageable(1), 2);
  Target to_first(kBytes);
  Target to_second(kBytes);
  TransferEngine engine(device, 1);
  TransferEngine other_engine(other, 1);
  EXPECT_EQ(&other_engine.device(), &other);
  start(engine, to_first, first)->wait_on(other.stream());
  start(other_engine, to_second, second)->wait_on(device.stream());
  engine.drain();
  other_engine.drain();
  EXPECT_TRUE(to_first.has(first));
  EXPECT_TRUE(to_second.has(second));
}

TEST_F(TransferEngineTest, nothing_is_made_in_10000_transfers_after_the_first_ones) {
  Target target(kBytes);
  TransferEngine engine(device, 3);
  const StreamHandle stream = new_stream(device);
  standin_set_max_delay_us(0);
  {  // The maximum that is ever needed at a time.
    standin_hold(STANDIN_HOLD);
    std::vector<std::shared_ptr<const Transfer>> kept(8);
    std::generate(kept.begin(), kept.end(), [&] { return engine.mark(); });
    Source sources[3] = {{pageable(0), 1}, {pageable(1), 1}, {pageable(2), 1}};
    for (Source& source : sources) {
      start(engine, target, source);
    }
    standin_hold(STANDIN_RUN);
    engine.drain();
  }
  const auto made = [] {
    return std::vector{standin_calls_of("cuEventCreate"), standin_calls_of("cuEventDestroy"),
                       standin_calls_of("cuStreamCreate"), standin_calls_of("cuMemHostRegister"),
                       standin_calls_of("cuMemHostUnregister")};
  };
  const auto before = made();
  std::vector<std::byte> written(kBytes);
  for (std::size_t i = 0; i < 10'000; ++i) {
    const std::span<std::byte> bytes = i % 2 == 0 ? pinned(i % 4) : pageable(i % 4);
    const auto transfer = engine.start(
        only({.to = device_pointer(written.data()), .from = bytes.data(), .size_bytes = 1 + i * 7 % kBytes}), nullptr);
    transfer->wait_on(stream);
    engine.mark()->wait_on(stream);
    if (i % 3 == 0) {
      engine.poll();
    }
  }
  engine.drain();
  EXPECT_EQ(made(), before);
  standin_drain();
}

}  // namespace
}  // namespace pyecho::cuda
