#include "cuda/deferred_release.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <utility>

namespace pyecho::cuda {
namespace {

// Maximum of unfinished leases that poll() checks. It runs at every batch, and the consumer may have dropped thousands.
constexpr std::size_t kFruitlessLooks = 16;

// True if the failure comes from the capture of a graph. It ends with the capture and says nothing about the context.
bool of_capture(Result result) { return result >= kStreamCaptureUnsupported && result <= kCapturedEvent; }

}  // namespace

DeferredRelease::DeferredRelease(const Device& device) : device_(device) { lane_of(device); }

DeferredRelease::~DeferredRelease() {
  // Retries, because a single failed call must not lose the memory. A third attempt helps if the failed call left state
  // that makes the second one fail.
  for (int attempt = 0; attempt < 3 && !waiting_.empty(); ++attempt) {
    end_leases(&DriverApi::event_synchronize, std::numeric_limits<std::size_t>::max()).clear();
  }
  if (!waiting_.empty()) {
    lose(std::move(waiting_));
  }
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
    mark_streams(made.emplace_back(), streams);
  } catch (const std::bad_alloc&) {
    lease.expect_no_end();
    alignas(Lease) std::byte never_destroyed[sizeof(Lease)];
    new (never_destroyed) Lease(std::move(lease));
    return;
  }
  made.front().lease = std::move(lease);
  update(made.front());
  waiting_.splice(waiting_.end(), made);
  waiting_count_.store_relaxed(waiting_.size());
}

// Makes a mark for each stream that may have work, and records it where possible. Ignores driver errors, because poll()
// will meet them again.
void DeferredRelease::mark_streams(Waiting& entry, std::span<const ConsumerStream> streams) {
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
  for (const Lane& lane : lanes_) {
    if (lane.watched.empty()) {
      continue;
    }
    try {
      const CurrentContext current(*lane.device);
      for (const StreamHandle stream : lane.watched) {
        const bool idle =
            capturing(stream) == kSuccess && device_.driver().try_call(&DriverApi::stream_query, stream) == kSuccess;
        if (!idle) {
          add(lane, stream);
        }
      }
    } catch (const CudaError&) {
      for (const StreamHandle stream : lane.watched) {  // all of them, because any may have work
        add(lane, stream);
      }
    }
  }
  for (Mark& mark : entry.marks) {
    static_cast<void>(record(mark));
  }
}

// Returns kSuccess if the stream is not being captured.
Result DeferredRelease::capturing(StreamHandle stream) const noexcept {
  int status = kCaptureStatusNone;
  const Result result = device_.driver().try_call(&DriverApi::stream_is_capturing, stream, &status);
  return result == kSuccess && status != kCaptureStatusNone ? kStreamCaptureUnsupported : result;
}

// Records the event of the mark. Returns the failure, if any; the caller may retry later.
Result DeferredRelease::record(Mark& mark) const noexcept {
  try {
    const CurrentContext current(*mark.lane->device);
    if (const Result result = capturing(mark.stream); result != kSuccess) {
      return result;
    }
    if (mark.event.get() == nullptr) {
      mark.event = mark.lane->events->take();
    }
    device_.driver().call(&DriverApi::event_record, mark.event.get(), mark.stream);
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
bool DeferredRelease::over(Mark& mark, Ask ask) const {
  Result result = mark.recorded ? kSuccess : record(mark);
  if (mark.recorded) {
    result = device_.driver().try_call(ask, mark.event.get());
    mark.recorded = result != kCapturedEvent;
  }
  return result == kSuccess || (result != kNotReady && !of_capture(result) && gone(*mark.lane->device, result));
}

// Removes the marks that are over. Returns true if none is left.
bool DeferredRelease::over(Waiting& entry, Ask ask) {
  std::erase_if(entry.marks, [&](Mark& mark) { return over(mark, ask); });
  update(entry);
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

// Takes out the entries that are over, and moves others to the back, so that the next call starts with other entries. Stops
// after `most_in_vain` of them.
std::list<DeferredRelease::Waiting> DeferredRelease::end_leases(Ask ask, std::size_t most_in_vain) {
  std::list<Waiting> ended;
  try {
    const CurrentContext current(device_);
    std::size_t in_vain = 0;
    for (std::size_t left = waiting_.size(); left > 0 && in_vain < most_in_vain; --left) {
      const bool is_over = over(waiting_.front(), ask);
      std::list<Waiting>& whither = is_over ? ended : waiting_;
      whither.splice(whither.end(), waiting_, waiting_.begin());
      in_vain += is_over ? 0 : 1;
    }
  } catch (const CudaError& error) {
    if (gone(device_, error.code())) {
      ended.splice(ended.end(), waiting_);
      held_back_count_.store_relaxed(0);
    }
  }
  waiting_count_.store_relaxed(waiting_.size());
  return ended;
}

void DeferredRelease::poll() noexcept {
  if (waiting() == 0 || !device_.driver().ready()) {
    return;  // nothing to do, or a forked child
  }
  std::list<Waiting> ended;  // declared before the lock, so that leases end after the mutex is released
  const std::scoped_lock lock(mutex_);
  ended = end_leases(&DriverApi::event_query, kFruitlessLooks);
}

}  // namespace pyecho::cuda
