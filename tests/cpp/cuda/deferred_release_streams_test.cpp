// Copies on streams that are not the current one when the batch is dropped, and on other devices.
#include <gtest/gtest.h>

#include <array>

#include "deferred_release_fixture.hpp"

namespace pyecho::cuda {
namespace {

class DeferredReleaseStreams : public DeferredReleaseTest {
 protected:
  const Device& second = Device::get(1);
  const std::array<StreamHandle, 3> side{new_stream(device), new_stream(device), new_stream(device)};
};

TEST_F(DeferredReleaseStreams, those_without_work_cost_no_event) {
  DeferredRelease retirement(device);
  retirement.watch(device, side);
  standin_hold(STANDIN_HOLD);
  batch.take(1);
  batch.copy(side[1]);
  batch.drop(retirement, stream);
  EXPECT_EQ(standin_calls_of("cuEventRecord"), 3U) << "the current one, the default one and the one with the copy";
  standin_drain();
  retirement.poll();
  EXPECT_TRUE(batch.ended());
  batch.take(2);
  batch.drop(retirement, side[0]);
  EXPECT_EQ(standin_calls_of("cuEventRecord"), 5U) << "once on a stream that is watched and current";
  standin_drain();
}

TEST_F(DeferredReleaseStreams, one_that_is_captured_is_neither_asked_nor_recorded_on) {
  DeferredRelease retirement(device);
  retirement.watch(device, side);
  standin_hold(STANDIN_HOLD);
  batch.take(1);
  batch.copy(side[0]);
  ASSERT_EQ(standin_begin_capture_of(side[0]), kSuccess);
  batch.drop(retirement, stream);
  EXPECT_EQ(retirement.held_back(), 1U);
  standin_drain();
  retirement.poll();
  EXPECT_FALSE(batch.ended());
  EXPECT_EQ(standin_end_capture(), kSuccess);
  retirement.poll();
  standin_drain();
  retirement.poll();
  EXPECT_TRUE(batch.ended() && batch.arrived());
}

TEST_F(DeferredReleaseStreams, streams_of_other_devices_are_waited_for) {
  const StreamHandle others = new_stream(second);
  const StreamHandle watched = new_stream(second);
  DeferredRelease retirement(device);
  retirement.watch(second, std::array{watched});
  standin_hold(STANDIN_STEP);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    standin_set_seed(seed);
    batch.take(seed);
    batch.copy(seed % 2 == 0 ? others : watched);
    retirement.retire(batch.give_away(), std::array{ConsumerStream{.device = &device, .handle = stream},
                                                    ConsumerStream{.device = &second, .handle = others}});
    while (!batch.ended()) {
      ASSERT_EQ(standin_step(), 1);
      retirement.poll();
    }
    EXPECT_TRUE(batch.arrived());
    batch.overwrite();
    standin_drain();
  }
}

TEST_F(DeferredReleaseStreams, what_cannot_be_found_out_counts_as_work) {
  for (const char* const call : {"cuCtxPushCurrent", "cuStreamQuery", "cuStreamIsCapturing"}) {
    for (std::uint64_t nth = 1; nth < 12; ++nth) {
      DeferredRelease retirement(device);
      retirement.watch(device, side);
      standin_hold(STANDIN_STEP);
      batch.take(nth);
      batch.copy(side[2]);
      standin_fail_call(call, nth, kUnknown, 0);
      batch.drop(retirement, stream);
      standin_fail_call(nullptr, 0, 0, 0);
      while (!batch.ended()) {
        standin_step();
        retirement.poll();
      }
      EXPECT_TRUE(batch.arrived()) << call << " " << nth;
      standin_drain();
    }
  }
}

}  // namespace
}  // namespace pyecho::cuda
