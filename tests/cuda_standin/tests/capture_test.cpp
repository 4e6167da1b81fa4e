// Streams that are captured, and events that were recorded into them.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "fixture.hpp"

namespace pyecho::standin {
namespace {

constexpr Result kStreamCaptureIsolation = 905;

class CaptureTest : public HeldStandIn {
 protected:
  // What pyecho's own threads do, which may then ask while others capture.
  void relax() {
    int mode = kCaptureModeRelaxed;
    ASSERT_EQ(cu.thread_exchange_capture_mode(&mode), kSuccess);
  }
};

TEST_F(CaptureTest, AnEventRecordedIntoItTellsNothingUntilItIsRecordedElsewhere) {
  relax();
  const StreamHandle captured = new_stream();
  const StreamHandle other = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(cu.event_record(event, captured), kSuccess);
  ASSERT_EQ(standin_step(), 1);
  EXPECT_EQ(cu.event_query(event), kSuccess);

  ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
  EXPECT_EQ(cu.event_query(event), kSuccess) << "it was recorded before";
  ASSERT_EQ(cu.event_record(event, captured), kSuccess);
  EXPECT_EQ(standin_pending(), 0U);
  const auto expect_captured = [&] {
    EXPECT_EQ(cu.event_query(event), kCapturedEvent);
    EXPECT_EQ(cu.event_synchronize(event), kCapturedEvent);
    EXPECT_EQ(cu.stream_wait_event(other, event, kLaunchDefault), kCapturedEvent);
  };
  EXPECT_EQ(cu.stream_wait_event(other, event, kLaunchDefault), kCapturedEvent);
  EXPECT_EQ(standin_end_capture(), kSuccess);
  expect_captured();

  ASSERT_EQ(cu.event_record(event, captured), kSuccess);
  EXPECT_EQ(cu.event_query(event), kNotReady);
  ASSERT_EQ(standin_step(), 1);
  EXPECT_EQ(cu.event_query(event), kSuccess);
}

TEST_F(CaptureTest, ToAskACapturedEventInvalidatesItsCaptureInEveryMode) {
  relax();
  const StreamHandle captured = new_stream();
  const EventHandle event = new_event();
  for (const auto& ask : {cu.event_query, cu.event_synchronize}) {
    ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
    ASSERT_EQ(cu.event_record(event, captured), kSuccess);
    EXPECT_EQ(ask(event), kCapturedEvent);
    EXPECT_EQ(standin_end_capture(), kStreamCaptureInvalidated);

    ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
    EXPECT_EQ(ask(event), kCapturedEvent);
    EXPECT_EQ(standin_end_capture(), kSuccess) << "it was an earlier one that captured the event";
  }
}

TEST_F(CaptureTest, WhetherAStreamIsCapturedMayBeAskedInEveryMode) {
  const StreamHandle captured = new_stream();
  const StreamHandle other = new_stream();
  const auto status_of = [&](StreamHandle stream) {
    int status = -1;
    EXPECT_EQ(cu.stream_is_capturing(stream, &status), kSuccess);
    return status;
  };
  EXPECT_EQ(status_of(captured), kCaptureStatusNone);
  ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
  EXPECT_EQ(status_of(captured), 1);
  EXPECT_EQ(status_of(other), kCaptureStatusNone);
  EXPECT_EQ(status_of(nullptr), kCaptureStatusNone);
  EXPECT_EQ(standin_end_capture(), kSuccess);
  ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
  ASSERT_EQ(cu.stream_synchronize(captured), kStreamCaptureUnsupported);
  EXPECT_EQ(status_of(captured), 2);
  EXPECT_EQ(standin_end_capture(), kStreamCaptureInvalidated);
  EXPECT_EQ(status_of(captured), kCaptureStatusNone);
  int status = 0;
  EXPECT_EQ(cu.stream_is_capturing(reinterpret_cast<StreamHandle>(0x77), &status), kInvalidHandle);
  EXPECT_EQ(cu.stream_is_capturing(captured, nullptr), kInvalidValue);
}

TEST_F(CaptureTest, ARecordOnAnotherStreamFreesAnEventDuringTheCapture) {
  relax();
  const StreamHandle captured = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
  ASSERT_EQ(cu.event_record(event, captured), kSuccess);
  ASSERT_EQ(cu.event_record(event, new_stream()), kSuccess);
  EXPECT_EQ(cu.event_query(event), kNotReady);
  EXPECT_EQ(standin_end_capture(), kSuccess);
}

TEST_F(CaptureTest, WhatTheStreamIsGivenIsNotExecuted) {
  int* const from = new_pinned(1, 7);
  int to = 0;
  const StreamHandle captured = new_stream();
  const StreamHandle other = new_stream();
  const auto copy_on = [&](StreamHandle stream) {
    return cu.memory_copy_to_device_async(device(&to), from, sizeof(int), stream);
  };
  ASSERT_EQ(copy_on(captured), kSuccess);  // before, and so it is executed
  ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
  ASSERT_EQ(copy_on(captured), kSuccess);
  bool called = false;
  ASSERT_EQ(
      extra.launch_host_function(captured, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called), kSuccess);
  EXPECT_EQ(standin_pending(), 1U);
  ASSERT_EQ(copy_on(other), kSuccess);
  EXPECT_EQ(standin_end_capture(), kSuccess);
  EXPECT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(to, 7);
  EXPECT_FALSE(called);
  EXPECT_EQ(standin_copied_bytes(), 2 * sizeof(int));
}

TEST_F(CaptureTest, ForbiddenCallsInvalidateItInEveryMode) {
  relax();
  const StreamHandle captured = new_stream();
  const EventHandle uncaptured = new_event();
  ASSERT_EQ(cu.event_record(uncaptured, new_stream()), kSuccess);
  const std::vector<std::pair<std::function<Result()>, Result>> forbidden{
      {[&] { return cu.stream_synchronize(captured); }, kStreamCaptureUnsupported},
      {[&] { return cu.stream_query(captured); }, kStreamCaptureUnsupported},
      {[&] { return cu.stream_wait_event(captured, uncaptured, kLaunchDefault); }, kStreamCaptureIsolation},
  };
  for (const auto& [call, answer] : forbidden) {
    ASSERT_EQ(standin_begin_capture_of(captured), kSuccess);
    EXPECT_EQ(call(), answer);
    const EventHandle event = new_event();
    EXPECT_EQ(cu.event_record(event, captured), kStreamCaptureInvalidated);
    EXPECT_EQ(cu.event_query(event), kSuccess) << "it was not recorded";
    EXPECT_EQ(standin_end_capture(), kStreamCaptureInvalidated);
    EXPECT_EQ(cu.event_record(event, captured), kSuccess);
  }
}

TEST_F(CaptureTest, OtherStreamsGoOn) {
  relax();
  ASSERT_EQ(standin_begin_capture_of(new_stream()), kSuccess);
  const StreamHandle other = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(cu.event_record(event, other), kSuccess);
  ASSERT_EQ(standin_step(), 1);
  EXPECT_EQ(cu.event_query(event), kSuccess);
  EXPECT_EQ(cu.stream_synchronize(other), kSuccess);
  EXPECT_EQ(cu.stream_wait_event(other, event, kLaunchDefault), kSuccess);
  EXPECT_EQ(standin_end_capture(), kSuccess);
}

TEST_F(CaptureTest, OnlyStreamsOfTheProgramCanBeCaptured) {
  EXPECT_EQ(standin_begin_capture_of(nullptr), kStreamCaptureUnsupported);
  EXPECT_EQ(standin_begin_capture_of(reinterpret_cast<void*>(0x77)), kInvalidHandle);
  EXPECT_EQ(cu.event_query(new_event()), kSuccess) << "nothing is captured";
}

}  // namespace
}  // namespace pyecho::standin
