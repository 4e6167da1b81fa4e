#include "cuda/retirement.hpp"

#include <array>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

namespace pyecho::cuda {
namespace {

// How many leases a look may find unfinished: it is made at every batch, and the consumer may have dropped thousands.
constexpr int kFruitlessLooks = 16;

// A failure that will pass when the capture of a graph is over, and tells nothing about the context.
bool of_capture(Result result) { return result >= kStreamCaptureUnsupported && result <= kCapturedEvent; }

}  // namespace

Retirement::Retirement(const Device& device) : device_(device), events_(std::make_shared<EventPool>(device)) {}

Retirement::~Retirement() {
  // Of all calls one may fail: a second attempt does not meet that failure again, and a third one not what it left.
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
    std::list<Waiting> waiting;
  };
  static auto* const lost = new Lost;
  const std::scoped_lock lock(lost->mutex);
  lost->waiting.splice(lost->waiting.end(), waiting_);
}

void Retirement::retire(Lease lease, StreamHandle stream) noexcept {
  lease.expect_end();
  if (!device_.driver().ready()) {
    return;  // a forked child; the mutex may be held by a thread that stayed in the parent
  }
  const std::array<StreamHandle, 2> streams{stream, nullptr};
  std::list<Waiting> made;  // may die after the lock
  bool remembered = true;
  try {
    made.emplace_back();
    made.front().marks.reserve(streams.size());
    for (const StreamHandle each : streams) {
      made.front().marks.push_back({.stream = each});
    }
    made.front().lease = std::move(lease);
  } catch (const std::bad_alloc&) {
    remembered = false;
  }
  const std::scoped_lock lock(mutex_);
  try {
    const CurrentContext current(device_);
    if (remembered) {
      for (Mark& mark : made.front().marks) {
        static_cast<void>(record(mark));
      }
    } else {
      for (const StreamHandle each : streams) {
        Mark mark{.stream = each};
        static_cast<void>(wait(mark) || wait(mark));  // there is no way left to keep it for longer
      }
    }
  } catch (const std::exception&) {
    // The failure is temporary, or the driver or the context has ended: poll() finds out.
  }
  if (remembered) {
    update(made.front());
    waiting_.splice(waiting_.end(), made);
    waiting_count_.store_relaxed(waiting_.size());
  }
}

// kSuccess if the stream is not being captured.
Result Retirement::capturing(StreamHandle stream) const noexcept {
  int status = kCaptureStatusNone;
  const Result result = device_.driver().try_call(&DriverApi::stream_is_capturing, stream, &status);
  return result == kSuccess && status != kCaptureStatusNone ? kStreamCaptureUnsupported : result;
}

// Records its event. What is wrong if that fails will be seen another time.
Result Retirement::record(Mark& mark) const noexcept {
  if (const Result result = capturing(mark.stream); result != kSuccess) {
    return result;
  }
  try {
    if (mark.event.handle() == nullptr) {
      mark.event = events_->take();
    }
    device_.driver().call(&DriverApi::event_record, mark.event.handle(), mark.stream);
  } catch (const CudaError& error) {
    return error.code();
  } catch (const std::exception&) {
    return kOutOfMemory;
  }
  // Another thread may have begun a capture meanwhile, of which the event has become a part.
  const Result result = capturing(mark.stream);
  mark.recorded = result == kSuccess;
  return result;
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

// Whether the device has done what the stream had been given, or will never read anything again.
bool Retirement::over(Mark& mark) const {
  Result result = kNotReady;
  if (mark.recorded) {
    result = device_.driver().try_call(&DriverApi::event_query, mark.event.handle());
    mark.recorded = result != kCapturedEvent;
  } else if (const Result failure = record(mark); failure != kSuccess) {
    result = failure;
  }
  return result == kSuccess || (result != kNotReady && !of_capture(result) && gone(result));
}

// Whether this is so for all of its streams.
bool Retirement::over(Waiting& entry) {
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

// Blocks until the device has done what the stream had been given. False if that cannot be told.
bool Retirement::wait(Mark& mark) const {
  if (!mark.recorded && record(mark) != kSuccess) {
    return false;
  }
  const Result result = device_.driver().try_call(&DriverApi::event_synchronize, mark.event.handle());
  mark.recorded = result != kCapturedEvent;
  return result == kSuccess;
}

bool Retirement::wait(Waiting& entry) const {
  std::erase_if(entry.marks, [this](Mark& mark) { return wait(mark); });
  return entry.marks.empty();
}

// The lease ends by itself once all is recorded, and not before.
void Retirement::update(Waiting& entry) {
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

// Those that were looked at in vain go to the end, so that the next look begins with others.
void Retirement::look(std::list<Waiting>& ended) {
  int in_vain = 0;
  for (std::size_t left = waiting_.size(); left > 0 && in_vain < kFruitlessLooks; --left) {
    const auto first = waiting_.begin();
    const bool is_over = over(*first);
    std::list<Waiting>& whither = is_over ? ended : waiting_;
    whither.splice(whither.end(), waiting_, first);
    in_vain += is_over ? 0 : 1;
  }
}

void Retirement::poll() noexcept {
  if (waiting() == 0 || !device_.driver().ready()) {
    return;  // nothing to do, or a forked child, as above
  }
  std::list<Waiting> ended;  // outside of the mutex
  const std::scoped_lock lock(mutex_);
  try {
    const CurrentContext current(device_);
    look(ended);
  } catch (const CudaError& error) {
    if (gone(error.code())) {
      ended.splice(ended.end(), waiting_);
      held_back_count_.store_relaxed(0);
    }
  }
  waiting_count_.store_relaxed(waiting_.size());
}

}  // namespace pyecho::cuda
