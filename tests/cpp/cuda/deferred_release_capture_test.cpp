// Batches that are dropped while a CUDA graph is captured. Then nothing may be recorded, and no query may invalidate the
// capture. Copies from before the capture may be under way.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "deferred_release_fixture.hpp"

namespace pyecho::cuda {
namespace {

class DeferredReleaseCapture : public DeferredReleaseTest {
 protected:
  void drop_in_a_capture(DeferredRelease& retirement) {
    batch.take(1);
    batch.copy(stream);
    ASSERT_EQ(standin_begin_capture_of(stream), kSuccess);
    batch.drop(retirement, stream);
  }
};

TEST_F(DeferredReleaseCapture, nothing_is_recorded_on_a_captured_stream_before_the_capture_is_over) {
  DeferredRelease retirement(device);
  standin_hold(STANDIN_HOLD);
  drop_in_a_capture(retirement);
  for (int look = 0; look < 10; ++look) {
    retirement.poll();
    EXPECT_FALSE(batch.ended());
    EXPECT_EQ(retirement.held_back(), 1U);
  }
  EXPECT_EQ(standin_calls_of("cuEventRecord"), 1U) << "on the default stream alone";
  EXPECT_EQ(standin_end_capture(), kSuccess) << "it was invalidated";
  // One look records, another one reads.
  for (int look = 0; look < 3; ++look) {
    retirement.poll();
    EXPECT_FALSE(batch.ended()) << "the copy is not done";
    EXPECT_EQ(retirement.held_back(), 0U);
  }
  standin_drain();
  retirement.poll();
  EXPECT_TRUE(batch.ended());
  EXPECT_TRUE(batch.arrived());
  EXPECT_EQ(new_live_events(), 2);
}

TEST_F(DeferredReleaseCapture, the_end_of_the_copy_alone_does_not_free_it_during_the_capture) {
  DeferredRelease retirement(device);
  standin_hold(STANDIN_HOLD);
  drop_in_a_capture(retirement);
  standin_drain();
  for (int look = 0; look < 4; ++look) {
    retirement.poll();
  }
  EXPECT_FALSE(batch.ended()) << "who captures may copy it before the capture ends";
  EXPECT_EQ(standin_end_capture(), kSuccess);
  for (int look = 0; look < 3; ++look) {
    retirement.poll();
    standin_drain();
  }
  retirement.poll();
  EXPECT_TRUE(batch.ended());
}

TEST_F(DeferredReleaseCapture, what_cannot_be_recorded_is_recorded_later) {
  OwnBatch other(device);
  DeferredRelease retirement(device);
  standin_hold(STANDIN_HOLD);
  other.take(2);
  other.copy(device.stream());  // which no look waits for
  batch.take(1);
  batch.copy(stream);
  ASSERT_EQ(standin_begin_capture_of(stream), kSuccess);
  {
    const CurrentContext current(device);
    ASSERT_EQ(device.driver().try_call(&DriverApi::stream_synchronize, stream), kStreamCaptureUnsupported);
  }
  batch.drop(retirement, stream);
  EXPECT_EQ(retirement.waiting(), 1U);
  retirement.poll();
  EXPECT_FALSE(batch.ended());
  EXPECT_EQ(standin_end_capture(), kStreamCaptureInvalidated);
  retirement.poll();
  retirement.poll();
  EXPECT_FALSE(batch.ended());
  standin_drain();
  retirement.poll();
  EXPECT_TRUE(batch.ended());
  EXPECT_TRUE(batch.arrived());
  standin_hold(STANDIN_RUN);
  other.drop(retirement, device.stream());
}

// Waiting for it inside the capture would hang forever.
TEST_F(DeferredReleaseCapture, its_pool_does_not_count_on_a_batch_that_is_held_back) {
  DeferredRelease retirement(device);
  standin_hold(STANDIN_HOLD);
  const std::uint64_t returns = batch.pool()->returns();
  drop_in_a_capture(retirement);
  EXPECT_GT(batch.pool()->returns(), returns) << "a worker that waits for it looks again";
  EXPECT_EQ(batch.pool()->obtain(), nullptr);
  EXPECT_TRUE(batch.pool()->exhausted()) << "its limit is one block, else it would have grown";

  const auto unlimited = std::make_shared<BatchPool>(SlotLayout({64}, 1, false), 1, std::size_t{1} << 20, PagePolicy{});
  retire(retirement, Lease(unlimited, unlimited->obtain()), device, stream);
  EXPECT_EQ(retirement.held_back(), 2U);
  Batch* const added = unlimited->obtain();
  EXPECT_NE(added, nullptr);

  EXPECT_EQ(standin_end_capture(), kSuccess);
  retirement.poll();
  EXPECT_EQ(retirement.held_back(), 0U);
  EXPECT_EQ(unlimited->obtain(), nullptr) << "it comes back soon";
  standin_drain();
  retirement.poll();
  EXPECT_NE(unlimited->obtain(), nullptr);
  EXPECT_EQ(unlimited->blocks(), 2U);
}

// Also if the capture begins between the query of the stream and the record.
TEST_F(DeferredReleaseCapture, an_event_that_a_capture_took_in_is_not_asked) {
  DeferredRelease retirement(device);
  batch.take(1);
  batch.copy(stream);
  std::atomic<bool> enough = false;
  std::atomic<int> invalidated = 0;
  std::jthread capturing([&] {
    while (!enough) {
      if (standin_begin_capture_of(stream) == kSuccess) {
        invalidated += standin_end_capture() == kSuccess ? 0 : 1;
      }
    }
  });
  for (std::uint64_t round = 2; round < 2000; ++round) {
    batch.drop(retirement, stream);
    while (!batch.ended()) {
      retirement.poll();
    }
    batch.take(round);
  }
  enough = true;
  capturing.join();
  EXPECT_EQ(invalidated, 0);
  batch.drop(retirement, stream);
}

TEST_F(DeferredReleaseCapture, one_by_another_thread_is_not_disturbed) {
  std::promise<void> end;
  std::promise<void> begun;
  std::future<int> capture = std::async(std::launch::async, [&] {
    standin_begin_capture();
    begun.set_value();
    end.get_future().wait();
    return standin_end_capture();
  });
  begun.get_future().wait();
  {
    DeferredRelease retirement(device);
    batch.take_copy_and_drop(1, retirement, stream);
    while (!batch.ended()) {
      retirement.poll();
    }
    batch.overwrite();
    batch.take_copy_and_drop(2, retirement, stream);
  }
  end.set_value();
  EXPECT_EQ(capture.get(), kSuccess);
  EXPECT_TRUE(batch.ended());
  EXPECT_TRUE(batch.arrived());
}

// In a process of its own, because a lost batch stays registered.
void end_during_a_capture() {
  const Device& device = Device::get(0);
  const StreamHandle stream = new_stream(device);
  OwnBatch batch(device);
  {
    DeferredRelease retirement(device);
    standin_hold(STANDIN_STEP);
    batch.take(1);
    batch.copy(stream);
    standin_begin_capture_of(stream);
    batch.drop(retirement, stream);
  }
  const bool kept = !batch.ended();
  const bool undisturbed = standin_end_capture() == kSuccess;
  standin_drain();
  std::exit(kept && undisturbed && batch.arrived() && !batch.ended() ? 0 : 1);
}

TEST(DeferredReleaseCaptureDeathTest, what_cannot_be_waited_for_at_the_end_is_lost_and_not_overwritten) {
  EXPECT_EXIT(end_during_a_capture(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
