// An emulated CUDA machine. Each stream is a thread, device memory is host memory, and work runs
// late, in the order of its stream.
//
// driver.cpp and runtime.cpp translate the two APIs of CUDA into the calls below. All state is in
// machine(), guarded by one mutex: a function here expects it to be held unless its comment says
// otherwise. One that takes a Lock waits, and gives the mutex up meanwhile. An error of CUDA is
// thrown as a Failure, whose codes are the same in both APIs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

namespace emulator {

enum Code : int {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotReady = 600,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
};

struct Failure {
  int code;
};

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

// ---- Streams and events (streams.cpp) ----

struct Stream;
struct Capture;

// A place in the order of a stream, reached when all work up to it has run.
struct Point {
  Stream* stream = nullptr;
  uint64_t position = 0;

  bool reached() const;
};

enum class Kind { kMark, kCopy, kKernel };  // what failures of running work count

struct Work {
  Kind kind = Kind::kMark;
  std::function<void()> run;  // without the mutex; may be empty
  std::vector<Point> after;   // of other streams
};

// Never freed, so that the use of a destroyed stream is noticed.
struct Stream {
  int device = 0;
  bool legacy = false;    // the default stream of its device
  bool blocking = false;  // waits for the legacy stream, and is waited for by it
  int priority = 0;
  bool alive = true;
  bool held = false;     // by a test
  bool started = false;  // has a thread
  uint64_t issued = 0, completed = 0;
  std::deque<Work> queue;
  Capture* capture = nullptr;
};

// Never freed either.
struct Event {
  int device = 0;
  bool timed = false;
  bool alive = true;
  Point point;  // of the last record
  std::shared_ptr<Clock::time_point> time;
  Capture* capture = nullptr;            // of the last record, if it was captured
  std::map<Stream*, uint64_t> frontier;  // what it stands for in that capture
};

Stream* create_stream(int device, bool blocking, int priority);
void destroy_stream(Stream& stream);
Stream& stream_of(void* handle, int device);  // null and 1 and 2 are the legacy stream of the device
void query(Stream& stream);                   // fails with kNotReady
void synchronize(Lock& lock, Stream& stream);
void synchronize_device(Lock& lock, int device);

// Appends work to a stream, or to its capture.
void issue(Stream& stream, Kind kind, std::function<void()> run, std::vector<Point> after = {});
// Waits until the work issued so far, on the streams that `chosen` accepts, has run.
// Where the chosen streams are, behind all that they have been given.
std::vector<Point> points(const std::function<bool(const Stream&)>& chosen);
void wait_for(Lock& lock, const std::function<bool(const Stream&)>& chosen);

Event* create_event(int device, bool timed);
Event& event_of(void* handle);
void record(Event& event, Stream& stream);
void wait(Stream& stream, Event& event);
void query(Event& event);
void synchronize(Lock& lock, Event& event);
float elapsed_ms(const Event& begin, const Event& end);

// ---- Memory and copies (memory.cpp) ----

enum class Place { kPageable, kPinned, kDevice };

struct Block {
  size_t size = 0;
  Place place = Place::kDevice;
  int device = 0;
  bool registered = false;  // memory of the program's own
  uint64_t id = 0;
};

// The memory that `pointer` points into; null for pageable memory.
const Block* block_of(const void* pointer);
void* allocate_device(size_t size, int device);
void free_device(void* pointer, Stream* stream = nullptr);  // in the order of a stream, or of all of its device
void* allocate_pinned(size_t size);
void free_pinned(Lock& lock, void* pointer);
void register_host(void* pointer, size_t size);
void unregister_host(Lock& lock, void* pointer);

enum class Direction { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kAny };

// Copies in the order of the stream. Returns when pageable memory has been read or written.
void copy(Lock& lock, Stream& stream, void* to, const void* from, size_t size, Direction direction);
void fill(Stream& stream, void* to, int value, size_t size);

// ---- Captures and graphs (capture.cpp) ----

enum Mode : int { kGlobal, kThreadLocal, kRelaxed };

// Work in the order of its capture, which respects every dependency.
struct Graph {
  std::vector<std::function<void()>> steps;
};

struct Capture {
  uint64_t id = 0;
  int mode = kGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  bool invalid = false;
  // For each captured stream, how many steps of which stream come before its next one.
  std::map<Stream*, std::map<Stream*, uint64_t>> frontiers;
  Graph graph;
};

void begin_capture(Stream& stream, int mode);
Graph* end_capture(Stream& stream);
// 0: none, 1: active, 2: invalidated.
int capture_status(const Stream& stream);
// Fails, and invalidates captures, if the calling thread may make no unsafe call now.
void check_unsafe();
// Fails, and invalidates captures, if use of the legacy stream depends on a captured one.
void check_implicit(const Stream& legacy);
[[noreturn]] void invalidate(Capture& capture, int code);
void append(Stream& stream, std::function<void()> step);
void record_captured(Event& event, Stream& stream);
// True if the event was captured, and the wait is done with.
bool wait_captured(Stream& stream, Event& event);
void launch(Stream& stream, const Graph& graph);
int exchange_mode(int mode);  // of the calling thread

// ---- The machine, its settings, and what tests ask of it (control.cpp) ----

struct Settings {
  int64_t devices = 1;
  int64_t delay_us = 0;  // each piece of work takes up to so long, at random
  int64_t seed = 0;
  int64_t device_limit = int64_t{16} << 30;  // of each device
  int64_t pinned_limit = INT64_MAX;
  int64_t version = 13000;
  int64_t expecting = 0;  // violations are counted as expected ones
};

struct Counts {
  int64_t pinned_copies = 0, pageable_copies = 0, device_copies = 0;
  int64_t kernels = 0, pinned_bytes = 0, streams = 0, events = 0, expected = 0;
};

struct Device {
  Stream* legacy = nullptr;
  Stream* freeing = nullptr;  // gives memory back that was freed with work pending
  bool has_context = false;
  int64_t used_bytes = 0;
};

struct Machine {
  std::mutex mutex;
  std::condition_variable changed;
  Settings settings;
  Counts counts;
  bool initialized = false;
  bool in_use = false;    // cuInit() or the runtime was called: a forked child is lost
  bool finished = false;  // the program ends: kernels are dropped
  std::mt19937_64 random;
  std::vector<Device> devices;
  std::vector<Stream*> streams;  // those that are alive, or have work
  std::unordered_set<const void*> known_streams, known_events;
  std::map<uintptr_t, Block> blocks;
  std::vector<Capture*> captures;
};

Machine& machine();  // never destroyed
void initialize();   // by the environment; the first time only
void use_context(int device);

// Devices whose contexts the thread has made current, the innermost last; both APIs share them.
extern thread_local std::vector<int> contexts;

// Counts a call, and fails it if a test wants that. Passive functions ask the device nothing, so
// they work on a broken one.
void enter(const char* function, bool passive);
// True if a piece of work that runs now is to fail. The failure shows at the next synchronising call.
bool fails_now(Kind kind);
void show_running_failure();
// Callable with or without the mutex, and in a forked child.
void violation(const std::string& text);
bool forked();
// Notes a call in a forked child.
void note_forked_call(const char* function);

// Runs the body of a function of CUDA; returns its code.
template <class Body>
int call(const char* function, bool passive, Body body) {
  if (forked()) {
    if (!passive) note_forked_call(function);
    return kNotInitialized;
  }
  Lock lock(machine().mutex);
  try {
    initialize();
    enter(function, passive);
    body(lock);
    return 0;
  } catch (const Failure& failure) {
    return failure.code;
  }
}

}  // namespace emulator
