#include "cuda/deferred_release.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

namespace pyecho::cuda {
namespace {

// Maximum of unfinished leases that look() checks. It runs at every batch, and the consumer may have dropped thousands.
constexpr int kFruitlessLooks = 16;

// True if the failure comes from the capture of a graph. It ends with the capture and says nothing about the context.
bool of_capture(Result result) { return result >= kStreamCaptureUnsupported && result <= kCapturedEvent; }

}  // namespace

DeferredRelease::DeferredRelease(const Device& device) : device_(device) { lane_of(device); }

DeferredRelease::~DeferredRelease() {
  // Retries, because a single failed call must not lose the memory. A third attempt helps if the failed call left state
  // that makes the second one fail.
  Result failure = kSuccess;
  for (int attempt = 0; attempt < 3 && !waiting_.empty(); ++attempt) {
    try {
      const CurrentContext current(device_);
      for (auto entry = waiting_.begin(); entry != waiting_.end();) {
        entry = wait(*entry) ? waiting_.erase(entry) : std::next(entry);
      }
    } catch (const CudaError& error) {
      failure = error.code();
    }
  }
  if (!waiting_.empty() && !gone(device_, failure)) {
    lose();
  }
}

// Leaks the waiting leases. They stay reachable, so that leak checkers do not report them.
void DeferredRelease::lose() {
  struct Lost {
    std::mutex mutex;
    std::list<Waiting> waiting;
  };
  static auto* const lost = new Lost;
  const std::scoped_lock lock(lost->mutex);
  lost->waiting.splice(lost->waiting.end(), waiting_);
}

void DeferredRelease::watch(const Device& device, std::span<const StreamHandle> streams) {
  const std::scoped_lock lock(mutex_);
  lane_of(device).watched.assign(streams.begin(), streams.end());
}

DeferredRelease::Lane& DeferredRelease::lane_of(const Device& device) {
  const auto found = std::ranges::find(lanes_, &device, &Lane::device);
  return found != lanes_.end() ? *found : lanes_.emplace_back(&device, std::make_shared<EventPool>(device));
}

void DeferredRelease::retire(Lease lease, std::span<const ConsumerStream> streams) noexcept {
  lease.expect_end();
  if (!device_.driver().ready()) {
    return;  // a forked child; a thread that stayed in the parent may hold the mutex
  }
  std::list<Waiting> made;  // declared before the lock, so that it is destroyed after the mutex is released
  const std::scoped_lock lock(mutex_);
  try {
    list_streams(made.emplace_back(), streams);
  } catch (const std::bad_alloc&) {
    wait_without_memory(streams);
    return;
  }
  made.front().lease = std::move(lease);
  update(made.front());
  waiting_.splice(waiting_.end(), made);
  waiting_count_.store_relaxed(waiting_.size());
}

// Makes a mark for each stream that may have work, and records it where possible. Ignores driver errors, because poll()
// will meet them again.
void DeferredRelease::list_streams(Waiting& entry, std::span<const ConsumerStream> streams) {
  entry.marks.reserve(2 * streams.size() + 1);
  const auto add = [&entry](const Lane& lane, StreamHandle stream) {
    const auto same = [&](const Mark& mark) { return mark.lane == &lane && mark.stream == stream; };
    if (std::ranges::none_of(entry.marks, same)) {
      entry.marks.push_back({.lane = &lane, .stream = stream});
    }
  };
  for (const ConsumerStream& stream : streams) {
    add(lane_of(*stream.device), stream.handle);
    add(lane_of(*stream.device), nullptr);
  }
  add(lanes_.front(), nullptr);
  const std::size_t named = entry.marks.size();
  for (const Lane& lane : lanes_) {
    const bool watches = !lane.watched.empty();
    const auto end = entry.marks.begin() + static_cast<std::ptrdiff_t>(named);
    if (!watches && std::none_of(entry.marks.begin(), end, [&](const Mark& mark) { return mark.lane == &lane; })) {
      continue;
    }
    try {
      const CurrentContext current(*lane.device);
      for (std::size_t i = 0; i < named; ++i) {
        if (entry.marks[i].lane == &lane) {
          static_cast<void>(record(entry.marks[i]));
        }
      }
      list_watched(entry, lane);
    } catch (const CudaError&) {
      for (const StreamHandle stream : lane.watched) {  // all of them, because any may have work
        add(lane, stream);
      }
    }
  }
}

void DeferredRelease::list_watched(Waiting& entry, const Lane& lane) const {
  for (const StreamHandle stream : lane.watched) {
    const auto same = [&](const Mark& mark) { return mark.lane == &lane && mark.stream == stream; };
    if (!idle(stream) && std::ranges::none_of(entry.marks, same)) {
      entry.marks.push_back({.lane = &lane, .stream = stream});
      static_cast<void>(record(entry.marks.back()));
    }
  }
}

// Blocks until the streams are done, because without memory the lease cannot be kept for longer.
void DeferredRelease::wait_without_memory(std::span<const ConsumerStream> streams) const noexcept {
  const auto wait_for = [this](StreamHandle stream) {
    for (int attempt = 0; attempt < 2 && capturing(stream) == kSuccess; ++attempt) {
      if (device_.driver().try_call(&DriverApi::stream_synchronize, stream) == kSuccess) {
        return;
      }
    }
  };
  const auto wait_on = [&](const Device& device, std::span<const StreamHandle> handles) {
    try {
      const CurrentContext current(device);
      std::ranges::for_each(handles, wait_for);
    } catch (const std::exception&) {
      // The device cannot be waited for.
    }
  };
  for (const ConsumerStream& stream : streams) {
    wait_on(*stream.device, std::array<StreamHandle, 2>{stream.handle, nullptr});
  }
  wait_on(device_, std::array<StreamHandle, 1>{nullptr});
  for (const Lane& lane : lanes_) {
    wait_on(*lane.device, lane.watched);
  }
}

// Returns kSuccess if the stream is not being captured.
Result DeferredRelease::capturing(StreamHandle stream) const noexcept {
  int status = kCaptureStatusNone;
  const Result result = device_.driver().try_call(&DriverApi::stream_is_capturing, stream, &status);
  return result == kSuccess && status != kCaptureStatusNone ? kStreamCaptureUnsupported : result;
}

// True if the stream is known to have no work and is not being captured.
bool DeferredRelease::idle(StreamHandle stream) const noexcept {
  return capturing(stream) == kSuccess && device_.driver().try_call(&DriverApi::stream_query, stream) == kSuccess;
}

// Records the event of the mark. Returns the failure, if any; the caller may retry later.
Result DeferredRelease::record(Mark& mark) const noexcept {
  try {
    const CurrentContext current(*mark.lane->device);
    if (const Result result = capturing(mark.stream); result != kSuccess) {
      return result;
    }
    if (mark.event.handle() == nullptr) {
      mark.event = mark.lane->events->take();
    }
    device_.driver().call(&DriverApi::event_record, mark.event.handle(), mark.stream);
    // Another thread may have begun a capture meanwhile, and the event would be part of it.
    const Result result = capturing(mark.stream);
    mark.recorded = result == kSuccess;
    return result;
  } catch (const CudaError& error) {
    return error.code();
  } catch (const std::exception&) {
    return kOutOfMemory;
  }
}

// True if the device will never read anything again: `failure` says so, or synchronizing pyecho's stream fails as well.
bool DeferredRelease::gone(const Device& device, Result failure) {
  if (torn_down(failure)) {
    return true;
  }
  try {
    const CurrentContext current(device);
    return device.driver().try_call(&DriverApi::stream_synchronize, device.stream()) != kSuccess;
  } catch (const CudaError&) {
    return true;
  }
}

// True if the device has finished the marked work of the stream, or will never read anything again.
bool DeferredRelease::over(Mark& mark) const {
  Result result = kNotReady;
  if (mark.recorded) {
    result = device_.driver().try_call(&DriverApi::event_query, mark.event.handle());
    mark.recorded = result != kCapturedEvent;
  } else if (const Result failure = record(mark); failure != kSuccess) {
    result = failure;
  }
  return result == kSuccess || (result != kNotReady && !of_capture(result) && gone(*mark.lane->device, result));
}

// Removes the marks that are over. Returns true if none is left.
bool DeferredRelease::over(Waiting& entry) {
  for (std::size_t i = 0; i < entry.marks.size();) {
    if (over(entry.marks[i])) {
      entry.marks.erase(entry.marks.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  update(entry);
  return entry.marks.empty();
}

// Blocks until the device has finished the marked work of the stream. Returns false on any failure.
bool DeferredRelease::wait(Mark& mark) const {
  if (!mark.recorded && record(mark) != kSuccess) {
    return false;
  }
  const Result result = device_.driver().try_call(&DriverApi::event_synchronize, mark.event.handle());
  mark.recorded = result != kCapturedEvent;
  return result == kSuccess;
}

bool DeferredRelease::wait(Waiting& entry) const {
  std::erase_if(entry.marks, [this](Mark& mark) { return wait(mark); });
  return entry.marks.empty();
}

// Tells the pool whether the lease will end by itself, which is the case once all marks are recorded.
void DeferredRelease::update(Waiting& entry) {
  bool held_back = false;
  for (const Mark& mark : entry.marks) {
    held_back = held_back || !mark.recorded;
  }
  if (held_back != entry.held_back) {
    entry.held_back = held_back;
    held_back_count_.store_relaxed(held_back_count_.load_relaxed() + (held_back ? 1 : static_cast<std::size_t>(-1)));
    held_back ? entry.lease.expect_no_end() : entry.lease.expect_end();
  }
}

// Moves finished entries to `ended`, and unfinished ones to the back, so that the next call starts with other entries.
void DeferredRelease::look(std::list<Waiting>& ended) {
  int in_vain = 0;
  for (std::size_t left = waiting_.size(); left > 0 && in_vain < kFruitlessLooks; --left) {
    const auto first = waiting_.begin();
    const bool is_over = over(*first);
    std::list<Waiting>& whither = is_over ? ended : waiting_;
    whither.splice(whither.end(), waiting_, first);
    in_vain += is_over ? 0 : 1;
  }
}

void DeferredRelease::poll() noexcept {
  if (waiting() == 0 || !device_.driver().ready()) {
    return;  // nothing to do, or a forked child
  }
  std::list<Waiting> ended;  // declared before the lock, so that leases end after the mutex is released
  const std::scoped_lock lock(mutex_);
  try {
    const CurrentContext current(device_);
    look(ended);
  } catch (const CudaError& error) {
    if (gone(device_, error.code())) {
      ended.splice(ended.end(), waiting_);
      held_back_count_.store_relaxed(0);
    }
  }
  waiting_count_.store_relaxed(waiting_.size());
}

}  // namespace pyecho::cuda
