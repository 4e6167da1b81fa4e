#include <memory>
#include <utility>

#include "driver.hpp"
#include "state.hpp"

namespace pyecho::standin {
namespace {

constexpr unsigned kEventFlags = 7;      // BLOCKING_SYNC, DISABLE_TIMING, INTERPROCESS
constexpr unsigned kWaitEventFlags = 1;  // EXTERNAL
constexpr int kCaptureStatusActive = 1;
constexpr int kCaptureStatusInvalidated = 2;

// The answer to those who ask a captured event whether it is done, or wait for it.
Result captured_event(State& state, const Event& event) {
  return state.capture.active && state.capture.number == event.capture ? invalidate_capture(state, kCapturedEvent)
                                                                       : kCapturedEvent;
}

}  // namespace

Result stream_create(StreamHandle* stream, unsigned flags) {
  return call("cuStreamCreate", Needs::kContext, [&](State& state, Lock&) -> Result {
    if (stream == nullptr || (flags & ~kStreamNonBlocking) != 0) {
      return kInvalidValue;
    }
    *stream = create_stream(state);
    return kSuccess;
  });
}

Result stream_destroy(StreamHandle stream) {
  return call("cuStreamDestroy", Needs::kContext, [&](State& state, Lock&) -> Result {
    const std::shared_ptr<Stream> found = find_stream(state, stream);
    if (found == nullptr || found == find_stream(state, nullptr)) {
      return kInvalidHandle;
    }
    destroy_stream(state, stream);
    return kSuccess;
  });
}

Result stream_query(StreamHandle stream) {
  return call("cuStreamQuery", Needs::kNoCapture, [&](State& state, Lock&) -> Result {
    const std::shared_ptr<Stream> found = find_stream(state, stream);
    if (found == nullptr) {
      return kInvalidHandle;
    }
    if (is_captured(state, found)) {
      return invalidate_capture(state, kStreamCaptureUnsupported);
    }
    return found->pending.empty() ? kSuccess : kNotReady;
  });
}

Result stream_synchronize(StreamHandle stream) {
  return call("cuStreamSynchronize", Needs::kNoCapture, [&](State& state, Lock& lock) -> Result {
    const std::shared_ptr<Stream> found = find_stream(state, stream);
    if (found == nullptr) {
      return kInvalidHandle;
    }
    if (is_captured(state, found)) {
      return invalidate_capture(state, kStreamCaptureUnsupported);
    }
    // Not for what others issue meanwhile.
    return wait_until(state, lock, [&, issued = found->issued] { return found->finished >= issued; });
  });
}

Result stream_is_capturing(StreamHandle stream, int* status) {
  return call("cuStreamIsCapturing", Needs::kContext, [&](State& state, Lock&) -> Result {
    const std::shared_ptr<Stream> found = find_stream(state, stream);
    if (found == nullptr) {
      return kInvalidHandle;
    }
    if (status == nullptr) {
      return kInvalidValue;
    }
    *status = !is_captured(state, found)  ? kCaptureStatusNone
              : state.capture.invalidated ? kCaptureStatusInvalidated
                                          : kCaptureStatusActive;
    return kSuccess;
  });
}

Result stream_wait_event(StreamHandle stream, EventHandle event, unsigned flags) {
  return call("cuStreamWaitEvent", Needs::kContext, [&](State& state, Lock&) -> Result {
    const std::shared_ptr<Stream> found = find_stream(state, stream);
    const Event* const awaited = find_event(state, event);
    if (found == nullptr || awaited == nullptr) {
      return kInvalidHandle;
    }
    if ((flags & ~kWaitEventFlags) != 0) {
      return kInvalidValue;
    }
    if (is_captured(state, found)) {
      return awaited->captured ? capture_work(state) : invalidate_capture(state, kStreamCaptureIsolation);
    }
    if (awaited->captured) {
      return kCapturedEvent;
    }
    if (awaited->point != nullptr) {
      issue(state, found, Wait{awaited->point});
    }
    return kSuccess;
  });
}

Result launch_host_function(StreamHandle stream, HostFunctionPointer function, void* argument) {
  return call("cuLaunchHostFunc", Needs::kContext, [&](State& state, Lock&) -> Result {
    const std::shared_ptr<Stream> found = find_stream(state, stream);
    if (found == nullptr) {
      return kInvalidHandle;
    }
    if (function == nullptr) {
      return kInvalidValue;
    }
    if (is_captured(state, found)) {
      return capture_work(state);
    }
    issue(state, found, HostFunction{function, argument});
    return kSuccess;
  });
}

Result event_create(EventHandle* event, unsigned flags) {
  return call("cuEventCreate", Needs::kContext, [&](State& state, Lock&) -> Result {
    if (event == nullptr || (flags & ~kEventFlags) != 0) {
      return kInvalidValue;
    }
    *event = new_handle<EventHandle>(state);
    state.events.emplace(*event, Event{});
    return kSuccess;
  });
}

// Pending records and waits keep their points.
Result event_destroy(EventHandle event) {
  return call("cuEventDestroy", Needs::kContext, [&](State& state, Lock&) -> Result {
    return state.events.erase(event) == 1 ? kSuccess : kInvalidHandle;
  });
}

Result event_record(EventHandle event, StreamHandle stream) {
  return call("cuEventRecord", Needs::kContext, [&](State& state, Lock&) -> Result {
    const std::shared_ptr<Stream> found = find_stream(state, stream);
    Event* const recorded = find_event(state, event);
    if (found == nullptr || recorded == nullptr) {
      return kInvalidHandle;
    }
    if (is_captured(state, found)) {
      const Result result = capture_work(state);
      if (result == kSuccess) {
        *recorded = Event{.point = nullptr, .captured = true, .capture = state.capture.number};
      }
      return result;
    }
    recorded->captured = false;
    recorded->point = std::make_shared<Point>();
    issue(state, found, Record{recorded->point});
    return kSuccess;
  });
}

Result event_query(EventHandle event) {
  return call("cuEventQuery", Needs::kNoCapture, [&](State& state, Lock&) -> Result {
    const Event* const queried = find_event(state, event);
    if (queried == nullptr) {
      return kInvalidHandle;
    }
    if (queried->captured) {
      return captured_event(state, *queried);
    }
    return queried->point == nullptr || queried->point->reached ? kSuccess : kNotReady;
  });
}

Result event_synchronize(EventHandle event) {
  return call("cuEventSynchronize", Needs::kNoCapture, [&](State& state, Lock& lock) -> Result {
    const Event* const awaited = find_event(state, event);
    if (awaited == nullptr) {
      return kInvalidHandle;
    }
    if (awaited->captured) {
      return captured_event(state, *awaited);
    }
    // The point is kept, as the event may be recorded anew or destroyed meanwhile.
    return wait_until(state, lock, [point = awaited->point] { return point == nullptr || point->reached; });
  });
}

}  // namespace pyecho::standin
