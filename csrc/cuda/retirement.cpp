#include "cuda/retirement.hpp"

#include <exception>
#include <iterator>
#include <list>
#include <new>
#include <utility>
#include <vector>

namespace pyecho::cuda {
namespace {

// A failure that will pass when the capture of a graph is over, and tells nothing about the context.
bool of_capture(Result result) { return result >= kStreamCaptureUnsupported && result <= kCapturedEvent; }

}  // namespace

Retirement::Retirement(const Device& device) : device_(device), events_(std::make_shared<EventPool>(device)) {}

Retirement::~Retirement() {
  // A captured event has to be recorded anew, and of all calls one may fail: a third attempt does not meet either.
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
  if (waiting_.empty() || gone(failure)) {
    return;
  }
  // They stay reachable, so that leak checkers know it is meant.
  struct Lost {
    std::mutex mutex;
    std::list<std::deque<Waiting>> waiting;
  };
  static auto* const lost = new Lost;
  const std::scoped_lock lock(lost->mutex);
  lost->waiting.emplace_back().swap(waiting_);
}

void Retirement::retire(Lease lease, StreamHandle stream) noexcept {
  lease.expect_end();
  if (!device_.driver().ready()) {
    return;  // a forked child; the mutex may be held by a thread that stayed in the parent
  }
  Waiting entry{.lease = std::move(lease), .streams = {stream, nullptr}, .events = {}};  // may die after the lock
  const std::scoped_lock lock(mutex_);
  try {
    const CurrentContext current(device_);
    static_cast<void>(record(entry));
  } catch (const std::exception&) {
    // The failure is temporary, or the driver or the context has ended: poll() finds out.
  }
  try {
    waiting_.push_back(std::move(entry));
  } catch (const std::bad_alloc&) {
    try {
      const CurrentContext current(device_);
      static_cast<void>(wait(entry) || wait(entry));
    } catch (const std::exception&) {
      // Neither remembered nor waited for. There is no way left to keep it.
    }
  }
  waiting_count_.store_relaxed(waiting_.size());
}

// Records its events, if that is still to be done. What is wrong if that fails will be seen another time.
Result Retirement::record(Waiting& entry) const noexcept {
  try {
    for (std::size_t i = 0; i < entry.streams.size() && !entry.recorded; ++i) {
      if (entry.events[i].handle() == nullptr) {
        entry.events[i] = events_->take();
      }
      device_.driver().call(&DriverApi::event_record, entry.events[i].handle(), entry.streams[i]);
    }
    entry.recorded = true;
    return kSuccess;
  } catch (const CudaError& error) {
    return error.code();
  } catch (const std::exception&) {
    return kOutOfMemory;
  }
}

// Whether the device will never read anything again: `failure` says so, or a second look does not get further either.
bool Retirement::gone(Result failure) const {
  if (torn_down(failure)) {
    return true;
  }
  try {
    const CurrentContext current(device_);
    return device_.driver().try_call(&DriverApi::stream_synchronize, device_.stream()) != kSuccess;
  } catch (const CudaError&) {
    return true;
  }
}

// Whether the device is done with the batch, or will never read anything again.
bool Retirement::over(Waiting& entry) const {
  if (!entry.recorded) {
    const Result result = record(entry);
    return result != kSuccess && !of_capture(result) && gone(result);
  }
  for (const Event& event : entry.events) {
    const Result result = device_.driver().try_call(&DriverApi::event_query, event.handle());
    if (result == kCapturedEvent) {  // recorded into a graph that was being captured: it tells nothing
      entry.recorded = false;
      return false;
    }
    if (result != kSuccess) {
      return result != kNotReady && gone(result);
    }
  }
  return true;
}

// Blocks until the device is done with the batch. False if that cannot be told.
bool Retirement::wait(Waiting& entry) const {
  if (record(entry) != kSuccess) {
    return false;
  }
  for (const Event& event : entry.events) {
    const Result result = device_.driver().try_call(&DriverApi::event_synchronize, event.handle());
    if (result != kSuccess) {
      entry.recorded = result != kCapturedEvent;
      return false;
    }
  }
  return true;
}

void Retirement::poll() noexcept {
  if (waiting() == 0 || !device_.driver().ready()) {
    return;  // nothing to do, or a forked child, as above
  }
  std::vector<Lease> ended;  // outside of the mutex
  try {
    const std::scoped_lock lock(mutex_);
    ended.reserve(waiting_.size());
    const auto end_while = [&](const auto& condition) {
      while (!waiting_.empty() && condition()) {
        ended.push_back(std::move(waiting_.front().lease));
        waiting_.pop_front();
      }
    };
    try {
      const CurrentContext current(device_);
      end_while([&] { return over(waiting_.front()); });
    } catch (const CudaError& error) {
      const bool all = gone(error.code());
      end_while([&] { return all; });
    }
    waiting_count_.store_relaxed(waiting_.size());
  } catch (const std::bad_alloc&) {
    // Another time.
  }
}

}  // namespace pyecho::cuda
