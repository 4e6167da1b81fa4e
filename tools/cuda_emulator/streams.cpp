// Streams as threads, and events as points in their order.
#include <algorithm>
#include <cmath>

#include "emulator.hpp"

namespace emulator {

namespace {

constexpr auto kPatience = std::chrono::seconds(120);

bool ready(const Stream& stream) {
  if (stream.held || stream.queue.empty()) return false;
  for (const Point& point : stream.queue.front().after) {
    if (!point.reached()) return false;
  }
  return true;
}

// Mostly short ones.
std::chrono::microseconds random_delay() {
  Machine& m = machine();
  const double part = std::uniform_real_distribution<>()(m.random);
  return std::chrono::microseconds(std::lround(static_cast<double>(m.settings.delay_us) * part * part * part));
}

void run_stream(Stream& stream) {
  Machine& m = machine();
  Lock lock(m.mutex);
  for (;;) {
    m.changed.wait(lock, [&] { return ready(stream); });
    Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    const bool skipped = fails_now(work.kind) || (m.finished && work.kind == Kind::kKernel);
    const auto delay = random_delay();
    lock.unlock();
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    if (work.run && !skipped) work.run();
    work = {};
    lock.lock();
    ++stream.completed;
    m.changed.notify_all();
  }
}

// Waits for the machine, but not for ever: a deadlock should be a message.
void wait_until(Lock& lock, const std::function<bool()>& condition) {
  if (!machine().changed.wait_for(lock, kPatience, condition)) {
    violation("a call has waited for two minutes: is a stream held, or the GIL?");
    machine().changed.wait(lock, condition);
  }
}

void fail_unless_alive(bool known, bool alive, const char* what) {
  if (!known) throw Failure{kInvalidHandle};
  if (!alive) {
    violation(std::string("a destroyed ") + what + " was used");
    throw Failure{kInvalidHandle};
  }
}

}  // namespace

bool Point::reached() const { return stream == nullptr || stream->completed >= position; }

Stream* create_stream(int device, bool blocking, int priority) {
  Machine& m = machine();
  auto* stream = new Stream;
  stream->device = device;
  stream->blocking = blocking;
  stream->priority = priority;
  m.streams.push_back(stream);
  m.known_streams.insert(stream);
  ++m.counts.streams;
  return stream;
}

void destroy_stream(Stream& stream) {  // its work goes on
  stream.alive = false;
  --machine().counts.streams;
}

Stream& stream_of(void* handle, int device) {
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    Stream& legacy = *machine().devices[device].legacy;
    check_implicit(legacy);
    return legacy;
  }
  auto* stream = static_cast<Stream*>(handle);
  const bool known = machine().known_streams.count(handle) > 0;
  fail_unless_alive(known, known && stream->alive, "stream");
  return *stream;
}

void issue(Stream& stream, Kind kind, std::function<void()> run, std::vector<Point> after) {
  if (stream.capture) return append(stream, std::move(run));
  Machine& m = machine();
  if (stream.legacy) {
    for (Stream* other : m.streams) {
      if (other->blocking && other->device == stream.device) after.push_back({other, other->issued});
    }
  } else if (stream.blocking) {
    Stream* legacy = m.devices[stream.device].legacy;
    after.push_back({legacy, legacy->issued});
  }
  ++stream.issued;
  stream.queue.push_back({kind, std::move(run), std::move(after)});
  if (!stream.started) {
    stream.started = true;
    std::thread([&stream] { run_stream(stream); }).detach();
  }
  m.changed.notify_all();
}

std::vector<Point> points(const std::function<bool(const Stream&)>& chosen) {
  std::vector<Point> found;
  for (Stream* stream : machine().streams) {
    if (chosen(*stream)) found.push_back({stream, stream->issued});
  }
  return found;
}

void wait_for(Lock& lock, const std::function<bool(const Stream&)>& chosen) {
  wait_until(lock, [awaited = points(chosen)] {
    return std::all_of(awaited.begin(), awaited.end(), [](const Point& point) { return point.reached(); });
  });
}

void query(Stream& stream) {
  if (stream.capture) invalidate(*stream.capture, kCaptureUnsupported);
  check_unsafe();
  show_running_failure();
  if (stream.completed < stream.issued) throw Failure{kNotReady};
}

void synchronize(Lock& lock, Stream& stream) {
  if (stream.capture) invalidate(*stream.capture, kCaptureUnsupported);
  check_unsafe();
  wait_for(lock, [&](const Stream& other) {
    return &other == &stream || (stream.legacy && other.blocking && other.device == stream.device);
  });
  show_running_failure();
}

void synchronize_device(Lock& lock, int device) {
  check_unsafe();
  wait_for(lock, [&](const Stream& stream) { return stream.device == device; });
  show_running_failure();
}

Event* create_event(int device, bool timed) {
  auto* event = new Event;
  event->device = device;
  event->timed = timed;
  machine().known_events.insert(event);
  ++machine().counts.events;
  return event;
}

Event& event_of(void* handle) {
  auto* event = static_cast<Event*>(handle);
  const bool known = machine().known_events.count(handle) > 0;
  fail_unless_alive(known, known && event->alive, "event");
  return *event;
}

void record(Event& event, Stream& stream) {
  if (event.device != stream.device) throw Failure{kInvalidHandle};
  if (stream.capture) return record_captured(event, stream);
  event.capture = nullptr;
  event.time = std::make_shared<Clock::time_point>();
  issue(stream, Kind::kMark, [time = event.time] { *time = Clock::now(); });
  event.point = {&stream, stream.issued};
}

void wait(Stream& stream, Event& event) {
  if (wait_captured(stream, event)) return;
  if (!event.point.reached()) issue(stream, Kind::kMark, nullptr, {event.point});
}

void query(Event& event) {
  if (event.capture) invalidate(*event.capture, kCapturedEvent);
  check_unsafe();
  show_running_failure();
  if (!event.point.reached()) throw Failure{kNotReady};
}

void synchronize(Lock& lock, Event& event) {
  if (event.capture) invalidate(*event.capture, kCapturedEvent);
  check_unsafe();
  const Point point = event.point;
  wait_until(lock, [&] { return point.reached(); });
  show_running_failure();
}

float elapsed_ms(const Event& begin, const Event& end) {
  if (!begin.timed || !end.timed || !begin.time || !end.time) throw Failure{kInvalidHandle};
  if (!begin.point.reached() || !end.point.reached()) throw Failure{kNotReady};
  return std::chrono::duration<float, std::milli>(*end.time - *begin.time).count();
}

}  // namespace emulator
