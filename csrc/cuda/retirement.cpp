#include "cuda/retirement.hpp"

#include <exception>
#include <new>
#include <utility>
#include <vector>

namespace pyecho::cuda {

Retirement::Retirement(const Device& device) : device_(device), events_(std::make_shared<EventPool>(device)) {}

Retirement::~Retirement() {
  try {
    const CurrentContext current(device_);
    for (const Waiting& entry : waiting_) {
      for (const Event& event : entry.events) {
        if (event.handle() != nullptr) {
          static_cast<void>(device_.driver().try_call(&DriverApi::event_synchronize, event.handle()));
        }
      }
    }
  } catch (const CudaError&) {
    // The driver has ended, or stayed in the parent process, and all copies with it.
  }
}

void Retirement::retire(Lease lease, StreamHandle stream) noexcept {
  lease.expect_end();
  Lease ended;  // dies after the lock
  const std::scoped_lock lock(mutex_);
  try {
    waiting_.push_back({.lease = std::move(lease), .streams = {stream, nullptr}, .events = {}, .recorded = false});
    const CurrentContext current(device_);
    record(waiting_.back());
  } catch (const CudaError& error) {
    // At the driver's end, or in a forked child, there is no copy any more. Any other failure is temporary (a capture),
    // or the context is broken; poll() finds out.
    if (torn_down(error.code())) {
      ended = std::move(waiting_.back().lease);
      waiting_.pop_back();
    }
  } catch (const std::bad_alloc&) {
    // The lease was not remembered, or its events were not made: poll() records them.
  }
  waiting_count_.store_relaxed(waiting_.size());
}

void Retirement::record(Waiting& entry) {
  for (std::size_t i = 0; i < entry.streams.size(); ++i) {
    if (entry.events[i].handle() == nullptr) {
      entry.events[i] = events_->take();
    }
    device_.driver().call(&DriverApi::event_record, entry.events[i].handle(), entry.streams[i]);
  }
  entry.recorded = true;
}

// Whether the context is beyond repair, so that nothing runs in it.
bool Retirement::broken() const {
  return device_.driver().try_call(&DriverApi::stream_synchronize, device_.stream()) != kSuccess;
}

// Whether the device is done with the batch, or will never read anything again.
bool Retirement::over(Waiting& entry) {
  if (!entry.recorded) {
    record(entry);
    return false;
  }
  for (const Event& event : entry.events) {
    const Result result = device_.driver().try_call(&DriverApi::event_query, event.handle());
    if (result == kCapturedEvent) {  // recorded into a graph that was being captured: it tells nothing
      entry.recorded = false;
      return false;
    }
    if (result != kSuccess) {
      return result != kNotReady && broken();
    }
  }
  return true;
}

void Retirement::poll() noexcept {
  if (waiting() == 0) {
    return;
  }
  std::vector<Lease> ended;  // outside of the mutex
  try {
    const std::scoped_lock lock(mutex_);
    const CurrentContext current(device_);
    ended.reserve(waiting_.size());
    while (!waiting_.empty() && over(waiting_.front())) {
      ended.push_back(std::move(waiting_.front().lease));
      waiting_.pop_front();
    }
    waiting_count_.store_relaxed(waiting_.size());
  } catch (const std::exception&) {
    // A stream is being captured, or the context is broken: look again another time.
  }
}

}  // namespace pyecho::cuda
