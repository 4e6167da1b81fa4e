// Streams, events and the work in them. Everything here is guarded by State::mutex; functions that take a Lock may let
// go of it for a while.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <variant>

#include "config.hpp"
#include "core/plan/random.hpp"
#include "extra_api.hpp"

namespace pyecho::standin {

struct State;
using Lock = std::unique_lock<std::mutex>;

// A place in the order of a stream's work. An event means the point of its last record; a wait keeps the point that the
// event meant when the wait was issued.
struct Point {
  bool reached = false;
};

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::size_t size_bytes;
  bool to_device;

  [[nodiscard]] const std::byte* host_side() const noexcept { return to_device ? from : to; }
};
struct Record {
  std::shared_ptr<Point> point;
};
struct Wait {
  std::shared_ptr<Point> point;
};
struct HostFunction {
  HostFunctionPointer function;
  void* argument;
};
using Operation = std::variant<Copy, Record, Wait, HostFunction>;

struct Stream {
  explicit Stream(std::uint64_t its_number) : number(its_number) {}

  std::uint64_t number;
  Xoshiro256 random{0};
  std::deque<Operation> pending;  // the first one stays until it has been executed
  bool busy = false;              // the first one is being executed
  bool destroyed = false;
  bool has_thread = false;
  std::uint64_t issued = 0;
  std::uint64_t finished = 0;
  std::condition_variable wake;  // for its thread
};

struct Event {
  std::shared_ptr<Point> point;  // null until recorded, and while captured
  bool captured = false;         // it was recorded last into a stream that was captured
  std::uint64_t capture = 0;     // by this capture
};

void seed_stream(const State& state, Stream& stream);

// Null if there is none, or none any more. Handles 0 and 1 are the legacy default stream.
std::shared_ptr<Stream> find_stream(State& state, StreamHandle handle);
Event* find_event(State& state, EventHandle handle);

StreamHandle create_stream(State& state);
// Its pending work is still done.
void destroy_stream(State& state, StreamHandle handle);

void issue(State& state, const std::shared_ptr<Stream>& stream, Operation operation);

// Copies now, in this thread. The mutex is released meanwhile.
void copy_now(State& state, Lock& lock, const Copy& copy);

// See standin_step().
bool step(State& state, Lock& lock);

[[nodiscard]] std::uint64_t pending_operations(const State& state);
// Whether a copy that is pending (or else: being executed) touches these bytes, on its host or its device side.
[[nodiscard]] bool copy_pending(const State& state, const std::byte* data, std::size_t size_bytes);
[[nodiscard]] bool copy_running(const State& state, const std::byte* data, std::size_t size_bytes);
// Turns the copies that touch these bytes, and are not being executed, into operations that do nothing.
void skip_copies(State& state, const std::byte* data, std::size_t size_bytes);

// Something has changed that a stream or a call may be waiting for. Starts threads where they are needed.
void wake_all(State& state);

// Waits until nothing is pending, without delays; drops work that would not be executed. Streams run afterwards.
void settle(State& state, Lock& lock);

}  // namespace pyecho::standin
