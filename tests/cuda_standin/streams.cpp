#include "streams.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "state.hpp"

namespace pyecho::standin {
namespace {

// Whether its first operation could be executed now, if the streams are not held.
bool runnable(const State& state, const Stream& stream) {
  if (state.fault != kSuccess || state.deinitialized || stream.busy || stream.pending.empty()) {
    return false;
  }
  const Wait* const wait = std::get_if<Wait>(&stream.pending.front());
  return wait == nullptr || wait->point->reached;
}

bool idle(const State& state) {
  return std::all_of(state.streams.begin(), state.streams.end(),
                     [](const auto& entry) { return entry.second->pending.empty(); });
}

// Someone keeps `stream` meanwhile.
void forget_if_done(State& state, Stream& stream) {
  if (stream.destroyed && stream.pending.empty()) {
    std::erase_if(state.streams, [&](const auto& entry) { return entry.second.get() == &stream; });
    stream.wake.notify_one();  // wake_all() does not reach it any more
  }
}

void run_host_function(State& state, Lock& lock, const HostFunction& host) {
  this_thread(state).in_host_function = true;
  lock.unlock();
  host.function(host.argument);
  lock.lock();
  this_thread(state).in_host_function = false;
}

// `stream` is kept by the caller: it may be forgotten here.
void execute_first(State& state, Lock& lock, Stream& stream) {
  stream.busy = true;
  // Nobody removes it while the stream is busy, and appending to a deque leaves it where it is.
  const Operation& operation = stream.pending.front();
  if (const auto* const copy = std::get_if<Copy>(&operation)) {
    copy_now(state, lock, *copy);
  } else if (const auto* const record = std::get_if<Record>(&operation)) {
    record->point->reached = true;
  } else if (const auto* const host = std::get_if<HostFunction>(&operation)) {
    run_host_function(state, lock, *host);
  }
  stream.pending.pop_front();
  stream.busy = false;
  ++stream.finished;
  forget_if_done(state, stream);
  wake_all(state);
}

void run_stream(const std::shared_ptr<Stream>& stream) {
  State& state = the_state();
  Lock lock(state.mutex);
  const auto done = [&] { return state.deinitialized || (stream->destroyed && stream->pending.empty()); };
  const auto may_run = [&] { return state.hold == STANDIN_RUN && runnable(state, *stream); };
  for (;;) {
    stream->wake.wait(lock, [&] { return done() || may_run(); });
    if (done()) {
      stream->has_thread = false;
      return;
    }
    const std::chrono::microseconds delay(stream->random.next() % (std::uint64_t{state.config.max_delay_us} + 1));
    stream->wake.wait_for(lock, delay, [&] { return state.hurried || !may_run(); });
    if (may_run()) {
      execute_first(state, lock, *stream);
    }
  }
}

// Detached: at exit() it must neither be waited for, as a host function may block for ever, nor be destroyed. Signals
// are for the program's own threads.
void start_thread(const std::shared_ptr<Stream>& stream) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([stream] { run_stream(stream); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  stream->has_thread = true;
}

void wake(const State& state, const std::shared_ptr<Stream>& stream) {
  if (!stream->has_thread && state.hold == STANDIN_RUN && runnable(state, *stream)) {
    start_thread(stream);
  }
  stream->wake.notify_one();
}

template <class Visit>
void for_each_copy(const State& state, const Visit& visit) {
  for (const auto& [handle, stream] : state.streams) {
    for (std::size_t i = 0; i < stream->pending.size(); ++i) {
      if (const auto* const copy = std::get_if<Copy>(&stream->pending[i])) {
        visit(*stream, i, *copy);
      }
    }
  }
}

bool touches(const Copy& copy, const std::byte* data, std::size_t size_bytes) {
  return overlap(copy.from, copy.size_bytes, data, size_bytes) || overlap(copy.to, copy.size_bytes, data, size_bytes);
}

// All but what is being executed.
void drop_pending(State& state) {
  const auto streams = state.streams;  // some are forgotten on the way
  for (const auto& [handle, stream] : streams) {
    const auto first = stream->pending.begin() + (stream->busy ? 1 : 0);
    for (auto operation = first; operation != stream->pending.end(); ++operation) {
      if (auto* const record = std::get_if<Record>(&*operation)) {
        record->point->reached = true;  // for those who wait in a call
      }
    }
    stream->pending.erase(first, stream->pending.end());
    stream->finished = stream->issued - stream->pending.size();
    forget_if_done(state, *stream);
  }
}

}  // namespace

void seed_stream(const State& state, Stream& stream) {
  stream.random = Xoshiro256(mix64(state.config.seed) + stream.number);
}

std::shared_ptr<Stream> find_stream(State& state, StreamHandle handle) {
  const bool legacy = reinterpret_cast<std::uintptr_t>(handle) <= 1;
  const auto found = state.streams.find(legacy ? nullptr : handle);
  if (found != state.streams.end()) {
    return found->second->destroyed ? nullptr : found->second;
  }
  if (!legacy) {
    return nullptr;
  }
  auto stream = std::make_shared<Stream>(0);
  seed_stream(state, *stream);
  state.streams.emplace(nullptr, stream);
  return stream;
}

Event* find_event(State& state, EventHandle handle) {
  const auto found = state.events.find(handle);
  return found == state.events.end() ? nullptr : &found->second;
}

StreamHandle create_stream(State& state) {
  const auto handle = new_handle<StreamHandle>(state);
  auto stream = std::make_shared<Stream>(state.last_handle);
  seed_stream(state, *stream);
  state.streams.emplace(handle, std::move(stream));
  return handle;
}

void destroy_stream(State& state, StreamHandle handle) {
  const std::shared_ptr<Stream> stream = state.streams.at(handle);
  stream->destroyed = true;
  forget_if_done(state, *stream);
}

void issue(State& state, const std::shared_ptr<Stream>& stream, Operation operation) {
  stream->pending.push_back(std::move(operation));
  ++stream->issued;
  wake(state, stream);
}

void copy_now(State& state, Lock& lock, const Copy& copy) {
  ++state.copies_running;
  lock.unlock();
  std::memmove(copy.to, copy.from, copy.size_bytes);
  lock.lock();
  --state.copies_running;
  if (copy.to_device) {
    state.counters.copied_bytes += copy.size_bytes;
  }
  state.changed.notify_all();
}

bool step(State& state, Lock& lock) {
  std::vector<std::shared_ptr<Stream>> candidates;
  for (const auto& [handle, stream] : state.streams) {
    if (runnable(state, *stream)) {
      candidates.push_back(stream);
    }
  }
  if (candidates.empty()) {
    return false;
  }
  const std::shared_ptr<Stream> chosen = candidates[state.random.below(static_cast<std::uint32_t>(candidates.size()))];
  execute_first(state, lock, *chosen);
  return true;
}

std::uint64_t pending_operations(const State& state) {
  std::uint64_t count = 0;
  for (const auto& [handle, stream] : state.streams) {
    count += stream->pending.size();
  }
  return count;
}

bool copy_pending(const State& state, const std::byte* data, std::size_t size_bytes) {
  bool found = false;
  for_each_copy(
      state, [&](const Stream&, std::size_t, const Copy& copy) { found = found || touches(copy, data, size_bytes); });
  return found;
}

bool copy_running(const State& state, const std::byte* data, std::size_t size_bytes) {
  bool found = false;
  for_each_copy(state, [&](const Stream& stream, std::size_t index, const Copy& copy) {
    found = found || (stream.busy && index == 0 && touches(copy, data, size_bytes));
  });
  return found;
}

void skip_copies(State& state, const std::byte* data, std::size_t size_bytes) {
  for (const auto& [handle, stream] : state.streams) {
    for (std::size_t i = stream->busy ? 1 : 0; i < stream->pending.size(); ++i) {
      Operation& operation = stream->pending[i];
      if (const auto* const copy = std::get_if<Copy>(&operation); copy != nullptr && touches(*copy, data, size_bytes)) {
        operation = Record{std::make_shared<Point>()};
      }
    }
  }
}

void wake_all(State& state) {
  state.changed.notify_all();
  for (const auto& [handle, stream] : state.streams) {
    wake(state, stream);
  }
}

void settle(State& state, Lock& lock) {
  const bool held = state.hold != STANDIN_RUN;
  state.hold = STANDIN_RUN;
  state.hurried = true;
  if (held) {
    drop_pending(state);
  }
  wake_all(state);
  for (;;) {
    if (state.fault != kSuccess || state.deinitialized) {
      drop_pending(state);
    }
    if (idle(state)) {
      break;
    }
    state.changed.wait(lock);
  }
  state.hurried = false;
}

}  // namespace pyecho::standin
