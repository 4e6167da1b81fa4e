// Records what the threads of this process do and when, so that it can be written as a trace. One recording at a time.
//
//     trace::Span span(trace::Kind::kGather);   // from here to the end of the scope
//     span.set_value(rows);
//
// While nothing is recorded, a Span costs one relaxed load. While a recording runs, a Span costs two reads of the
// clock, three read-modify-writes on shared words, and 32 bytes of a fixed array. No thread waits for another one,
// except that the first event of a thread takes a mutex to enter the thread's name.
//
// The array is never reused while a recording runs. If it is full, later events are counted and dropped, so the
// record stays complete up to then. An event is recorded when it ends: what is still under way at
// stop() is missing, and so is what began before start().
//
// variable   | written by              | read by       | order            | pairs with  | why
// state      | start [T1], stop [T2],  | record [T3],  | read-modify-     | all on one  | its top bit: a recording runs. The rest: how many
//            | record [T3], [T4]       | stop [T5]     | writes, acquire  | word        | threads are inside record(). See below
// next       | start, record           | stop          | relaxed          | by state    | claims a place; the thread owns the place it claims
// events[i]  | record                  | stop          | -                | [T4] -> [T5]| read after the last writer has left
// threads    | start, record           | stop          | mutex            | -           | names of the threads
// others     | start                   | record        | -                | [T1] -> [T3]| set before the recording begins
//
// A thread enters with [T3] and sees the top bit in the same operation. So either stop()'s [T2] comes later in the
// order of `state`, and stop() then waits at [T5] for this thread's [T4], or it came earlier, and the thread touches
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho::trace {

// kFill is a value at a time; all others are spans of time.
enum class Kind : std::uint8_t {
  kSource,
  kPut,
  kRoom,
  kPlan,
  kGather,
  kAugment,
  kUpload,
  kEcho,
  kWait,
  kStep,
  kFill,
};

// By Kind.
inline constexpr std::array<const char*, 11> kNames = {"source", "put",  "wait for room", "plan", "gather", "augment",
                                                       "upload", "echo", "wait",          "step", "fill"};

struct Event {
  std::uint64_t begin_ns;
  std::uint64_t end_ns;  // kFill: identifies the pool
  std::uint64_t value;   // items of a put, rows of a plan or gather, items of the pool; else 0
  std::uint32_t thread;  // its place in Recording::threads
  Kind kind;
};

struct Recording {
  std::unique_ptr<Event[]> events;
  std::size_t count = 0;
  std::uint64_t dropped = 0;         // events beyond the capacity
  std::uint64_t begin_ns = 0;        // when it began
  std::vector<std::string> threads;  // names; empty for a thread that has none
};

inline constexpr std::size_t kCapacity = std::size_t{1} << 20;

namespace detail {
inline constexpr std::uint64_t kRecording = std::uint64_t{1} << 63;
inline Atomic<std::uint64_t> state;
}  // namespace detail

[[nodiscard]] inline bool recording() noexcept { return detail::state.load_relaxed() >= detail::kRecording; }

// Returns the time on the clock of all events. It is never 0.
[[nodiscard]] inline std::uint64_t to_ns(Clock::time_point time) noexcept { return ns_of(time.time_since_epoch()); }

// Records an event of the calling thread. Does nothing if no recording runs or if it began before the recording.
void record(Kind kind, std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t value) noexcept;

// Names the calling thread; at most 31 bytes are kept. pyecho's own threads have names, and a user's have none.
void name_thread(const char* name) noexcept;
[[nodiscard]] bool thread_has_name() noexcept;

// Begins a recording of up to `capacity` events. Returns false if one runs already. One thread at a time calls start()
// and stop(). In a forked child no recording runs that the parent began. Throws std::bad_alloc, std::system_error.
bool start(std::size_t capacity = kCapacity);
// Ends the recording and returns it; empty if none runs. Waits for threads inside record(), which never block.
[[nodiscard]] Recording stop();

// Records the time from its construction to its destruction.
class Span {
 public:
  explicit Span(Kind kind) noexcept : begin_ns_(recording() ? to_ns(Clock::now()) : 0), kind_(kind) {}
  ~Span() {
    if (begin_ns_ != 0) [[unlikely]] {
      record(kind_, begin_ns_, to_ns(Clock::now()), value_);
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void set_value(std::uint64_t value) noexcept { value_ = value; }
  // Records nothing.
  void cancel() noexcept { begin_ns_ = 0; }

 private:
  std::uint64_t begin_ns_;  // 0: nothing to record
  std::uint64_t value_ = 0;
  const Kind kind_;
};

// Records how many items a pool holds. `pool` identifies it.
inline void record_fill(const void* pool, std::uint64_t items) noexcept {
  if (recording()) [[unlikely]] {
    record(Kind::kFill, to_ns(Clock::now()), reinterpret_cast<std::uintptr_t>(pool), items);
  }
}

}  // namespace pyecho::trace
