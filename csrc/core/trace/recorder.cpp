#include "core/trace/recorder.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/sync/fork_guard.hpp"

namespace pyecho::trace {
namespace {

using detail::kRecording;
using detail::state;

struct Recorder {
  Atomic<std::uint64_t> next;
  std::unique_ptr<Event[]> events;
  std::size_t capacity = 0;
  std::uint64_t began_ns = 0;
  std::uint64_t number = 0;  // of the recording, from 1
  std::optional<ForkGuard> guard;
  std::mutex mutex;
  std::vector<std::string> threads;
};
Recorder* recorder = new Recorder;  // never destroyed, because threads may record while the process exits

struct Self {
  std::array<char, 32> name{};
  std::uint64_t recording = 0;  // the last one that this thread is entered in
  std::uint32_t place = 0;      // in the threads of that recording
};
thread_local Self self;

// Enters the calling thread into the recording. Returns false if there is no memory.
bool enter_thread() noexcept {
  try {
    const std::scoped_lock lock(recorder->mutex);
    recorder->threads.emplace_back(self.name.data());
    self.place = static_cast<std::uint32_t>(recorder->threads.size() - 1);
    self.recording = recorder->number;
    return true;
  } catch (const std::exception&) {  // the event is missing, which is all that can be done here
    return false;
  }
}

bool forked() noexcept { return recorder->guard && recorder->guard->forked(); }

}  // namespace

void name_thread(const char* name) noexcept {
  const std::size_t length = std::min(std::strlen(name), self.name.size() - 1);
  std::memcpy(self.name.data(), name, length);
  self.name[length] = '\0';
  self.recording = 0;
}

bool thread_has_name() noexcept { return self.name[0] != '\0'; }

void record(Kind kind, std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t value) noexcept {
  const bool runs = state.fetch_add_acq_rel(1) >= kRecording;  // [T3] pairs with [T1]; [T5] waits for [T4]
  if (runs && !forked() && begin_ns >= recorder->began_ns && (self.recording == recorder->number || enter_thread())) {
    const std::uint64_t place = recorder->next.fetch_add_relaxed(1);
    if (place < recorder->capacity) {
      recorder->events[place] = {
          .begin_ns = begin_ns, .end_ns = end_ns, .value = value, .thread = self.place, .kind = kind};
    }
  }
  state.fetch_add_acq_rel(-std::uint64_t{1});  // [T4] pairs with [T5]
}

bool start(std::size_t capacity) {
  if (forked()) {
    // The threads that were inside stayed in the parent, perhaps with the mutex.
    state.exchange_acq_rel(0);
    const std::uint64_t number = recorder->number;
    recorder = new Recorder;
    recorder->number = number;
  } else if (recording()) {
    return false;
  }
  recorder->guard.emplace();
  recorder->events = std::make_unique_for_overwrite<Event[]>(capacity);  // pages that are never written take no memory
  recorder->capacity = capacity;
  recorder->threads.clear();
  recorder->next.store_relaxed(0);
  ++recorder->number;
  recorder->began_ns = to_ns(Clock::now());
  state.fetch_or_acq_rel(kRecording);  // [T1] pairs with [T3]
  return true;
}

Recording stop() {
  if (!recording()) {
    return {};
  }
  if (forked()) {
    state.exchange_acq_rel(0);
    return {};
  }
  state.fetch_add_acq_rel(-kRecording);  // [T2]; see the header
  while (state.load_acquire() != 0) {    // [T5] pairs with [T4]
    std::this_thread::yield();
  }
  const std::uint64_t claimed = recorder->next.load_relaxed();
  const std::size_t count = std::min<std::uint64_t>(claimed, recorder->capacity);
  return {.events = std::move(recorder->events),
          .count = count,
          .dropped = claimed - count,
          .begin_ns = recorder->began_ns,
          .threads = std::move(recorder->threads)};
}

}  // namespace pyecho::trace
