// Stream capture by CUDA's rules, and graphs.
#include <algorithm>
#include <utility>

#include "emulator.hpp"

namespace emulator {

namespace {

thread_local int capture_mode = kGlobal;

// Returns true if a capture forbids unsafe calls to the calling thread.
bool forbids(const Capture& capture) {
  if (capture_mode == kRelaxed || capture.mode == kRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return capture_mode == kGlobal && capture.mode == kGlobal;
}

void merge(std::map<Stream*, uint64_t>& into, const std::map<Stream*, uint64_t>& from) {
  for (const auto& [stream, steps] : from) into[stream] = std::max(into[stream], steps);
}

bool is_under_way(const Capture* capture) {
  const auto& captures = machine().captures;
  return std::find(captures.begin(), captures.end(), capture) != captures.end();
}

// Returns true if the origin waits, in the end, for all that other streams were given.
bool joined(Capture& capture) {
  auto& known = capture.frontiers[capture.origin];
  for (const auto& [stream, frontier] : capture.frontiers) {
    auto own = frontier.find(stream);
    if (own != frontier.end() && known[stream] < own->second) return false;
  }
  return true;
}

}  // namespace

void invalidate(Capture& capture, int code) {
  if (is_under_way(&capture)) capture.invalid = true;
  throw Failure{code};
}

void check_unsafe() {
  bool forbidden = false;
  for (Capture* capture : machine().captures) {
    if (forbids(*capture)) forbidden = capture->invalid = true;
  }
  if (forbidden) throw Failure{kCaptureUnsupported};
}

void check_implicit(const Stream& legacy) {
  for (Capture* capture : machine().captures) {
    for (const auto& [stream, frontier] : capture->frontiers) {
      if (stream->blocking && stream->device == legacy.device) invalidate(*capture, kCaptureImplicit);
    }
  }
}

void begin_capture(Stream& stream, int mode) {
  if (stream.legacy) throw Failure{kCaptureUnsupported};
  if (stream.capture) throw Failure{kIllegalState};
  static uint64_t last_id = 0;
  auto* capture = new Capture;  // never freed: events refer to it
  capture->id = ++last_id;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->frontiers[&stream] = {};
  stream.capture = capture;
  machine().captures.push_back(capture);
}

Graph* end_capture(Stream& stream) {
  Capture* capture = stream.capture;
  if (!capture) throw Failure{kIllegalState};
  if (capture->origin != &stream) invalidate(*capture, kCaptureUnmatched);
  if (capture->mode != kRelaxed && capture->thread != std::this_thread::get_id())
    invalidate(*capture, kCaptureWrongThread);
  const bool all_joined = joined(*capture);
  for (auto& [captured, frontier] : capture->frontiers) captured->capture = nullptr;
  auto& captures = machine().captures;
  captures.erase(std::find(captures.begin(), captures.end(), capture));
  if (capture->invalid) throw Failure{kCaptureInvalidated};
  if (!all_joined) throw Failure{kCaptureUnjoined};
  return new Graph(std::move(capture->graph));
}

int capture_status(const Stream& stream) { return !stream.capture ? 0 : (stream.capture->invalid ? 2 : 1); }

void append(Stream& stream, std::function<void()> step) {
  Capture& capture = *stream.capture;
  if (capture.invalid) throw Failure{kCaptureInvalidated};
  ++capture.frontiers[&stream][&stream];
  if (step) capture.graph.steps.push_back(std::move(step));
}

void record_captured(Event& event, Stream& stream) {
  Capture& capture = *stream.capture;
  if (capture.invalid) throw Failure{kCaptureInvalidated};
  event.capture = &capture;
  event.frontier = capture.frontiers[&stream];
  event.point = {};
}

bool wait_captured(Stream& stream, Event& event) {
  if (!event.capture) {
    if (stream.capture) invalidate(*stream.capture, kCaptureIsolation);
    return false;
  }
  if (!is_under_way(event.capture)) throw Failure{kCapturedEvent};
  if (stream.legacy) invalidate(*event.capture, kCaptureImplicit);
  if (stream.capture && stream.capture != event.capture) invalidate(*stream.capture, kCaptureMerge);
  stream.capture = event.capture;
  merge(event.capture->frontiers[&stream], event.frontier);
  return true;
}

void launch(Stream& stream, const Graph& graph) {
  issue(stream, Kind::kKernel, [steps = graph.steps] {
    for (const auto& step : steps) step();
  });
}

int exchange_mode(int mode) { return std::exchange(capture_mode, mode); }

}  // namespace emulator
