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

Atomic<std::uint64_t> next_;
std::unique_ptr<Event[]> events_;
std::size_t capacity_ = 0;
std::uint64_t began_ns_ = 0;
std::uint64_t number_ = 0;  // of the recording, from 1
std::optional<ForkGuard> guard_;
std::mutex mutex_;
std::vector<std::string> threads_;

struct Self {
  std::array<char, 32> name{};
  std::uint64_t recording = 0;  // the last one that this thread is entered in
  std::uint32_t place = 0;      // in threads_ of that recording
};
thread_local Self self;

// Enters the calling thread into threads_. Returns false if there is no memory.
bool enter_thread() noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    threads_.emplace_back(self.name.data());
    self.place = static_cast<std::uint32_t>(threads_.size() - 1);
    self.recording = number_;
    return true;
  } catch (const std::exception&) {  // the event is missing, which is all that can be done here
    return false;
  }
}

bool forked() noexcept { return guard_ && guard_->forked(); }

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
  if (runs && begin_ns >= began_ns_ && (self.recording == number_ || enter_thread())) {
    const std::uint64_t place = next_.fetch_add_relaxed(1);
    if (place < capacity_) {
      events_[place] = {.begin_ns = begin_ns, .end_ns = end_ns, .value = value, .thread = self.place, .kind = kind};
    }
  }
  state.fetch_add_acq_rel(-std::uint64_t{1});  // [T4] pairs with [T5]
}

bool start(std::size_t capacity) {
  if (forked()) {
    state.exchange_acq_rel(0);  // the threads that were inside stayed in the parent
  } else if (recording()) {
    return false;
  }
  guard_.emplace();
  events_ = std::make_unique_for_overwrite<Event[]>(capacity);  // pages that are never written take no memory
  capacity_ = capacity;
  threads_.clear();
  next_.store_relaxed(0);
  ++number_;
  began_ns_ = to_ns(Clock::now());
  state.fetch_or_acq_rel(kRecording);  // [T1] pairs with [T3]
  return true;
}

Recording stop() {
  if (!recording()) {
    return {};
  }
  if (forked()) {
    state.exchange_acq_rel(0);
    events_.reset();
    return {};
  }
  state.fetch_add_acq_rel(-kRecording);  // [T2]; see the header
  while (state.load_acquire() != 0) {    // [T5] pairs with [T4]
    std::this_thread::yield();
  }
  const std::uint64_t claimed = next_.load_relaxed();
  const std::size_t count = std::min<std::uint64_t>(claimed, capacity_);
  return {.events = std::move(events_),
          .count = count,
          .dropped = claimed - count,
          .begin_ns = began_ns_,
          .threads = std::move(threads_)};
}

}  // namespace pyecho::trace
