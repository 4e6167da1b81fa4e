#include "cuda/transfer_engine.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "cuda/pinned_pages.hpp"

namespace pyecho::cuda {
namespace {

// Pieces of one staging block start at multiples of this, as device allocations do.
constexpr std::size_t kStagingAlignment = 256;

std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

}  // namespace

void Transfer::wait_on(StreamHandle stream) const {
  if (done()) {
    return;
  }
  const CurrentContext current(device_);
  device_.driver().call(&DriverApi::stream_wait_event, stream, event_.handle(), kLaunchDefault);
}

TransferEngine::TransferEngine(const Device& device, unsigned depth)
    : device_(device),
      depth_(depth),
      pinning_(std::make_shared<Pinning>(device, false)),
      events_(std::make_shared<EventPool>(device)) {
  assert(depth >= 1);
}

TransferEngine::~TransferEngine() {
  try {
    drain();
  } catch (const CudaError& error) {
    if (!torn_down(error.code()) && !under_way_.empty()) {
      // Nothing tells when the device will be done with these sources: better lost than overwritten.
      static_cast<void>(new (std::nothrow) std::deque<UnderWay>(std::move(under_way_)));
    }
  }
}

std::shared_ptr<const Transfer> TransferEngine::start(std::span<const Copy> copies, std::shared_ptr<void> source) {
  poll();
  while (under_way_.size() >= depth_) {
    finish_oldest();
  }
  const CurrentContext current(device_);
  const Driver& driver = device_.driver();
  copies_.assign(copies.begin(), copies.end());
  under_way_.push_back({.transfer = nullptr, .source = std::move(source), .staging = stage(copies_)});
  UnderWay& now = under_way_.back();
  try {
    Event event = events_->take();
    std::uint64_t bytes = 0;
    for (const Copy& copy : copies_) {
      if (copy.size_bytes > 0) {
        driver.call(&DriverApi::memory_copy_to_device_async, copy.to, static_cast<const void*>(copy.from),
                    copy.size_bytes, device_.stream());
        bytes += copy.size_bytes;
      }
    }
    driver.call(&DriverApi::event_record, event.handle(), device_.stream());
    now.transfer = std::make_shared<Transfer>(device_, std::move(event));
    bytes_.fetch_add_relaxed(bytes);
  } catch (const CudaError& error) {
    abandon(error);
  }
  return now.transfer;
}

std::shared_ptr<const Transfer> TransferEngine::mark() {
  const CurrentContext current(device_);
  Event event = events_->take();
  device_.driver().call(&DriverApi::event_record, event.handle(), device_.stream());
  return std::make_shared<Transfer>(device_, std::move(event));
}

void TransferEngine::poll() {
  if (under_way_.empty()) {
    return;
  }
  const CurrentContext current(device_);
  while (!under_way_.empty()) {
    const Result result =
        device_.driver().try_call(&DriverApi::event_query, under_way_.front().transfer->event_.handle());
    if (result == kNotReady) {
      return;
    }
    if (result != kSuccess) {
      abandon(device_.driver().error_of(result, &DriverApi::event_query));
    }
    retire_oldest();
  }
}

void TransferEngine::drain() {
  while (!under_way_.empty()) {
    finish_oldest();
  }
}

void TransferEngine::finish_oldest() {
  const CurrentContext current(device_);
  const Result result =
      device_.driver().try_call(&DriverApi::event_synchronize, under_way_.front().transfer->event_.handle());
  if (result != kSuccess) {
    abandon(device_.driver().error_of(result, &DriverApi::event_synchronize));
  }
  retire_oldest();
}

void TransferEngine::retire_oldest() {
  UnderWay oldest = std::move(under_way_.front());
  under_way_.pop_front();
  oldest.transfer->done_.store_release(1);
  if (oldest.staging.data() != nullptr) {
    staging_.push_back(std::move(oldest.staging));
  }
}

// After a failed call nobody knows which copies run. Once the stream is idle none does; and where not even that can be
// had, the context is broken and the device has stopped.
void TransferEngine::abandon(const CudaError& error) {
  static_cast<void>(device_.driver().try_call(&DriverApi::stream_synchronize, device_.stream()));
  under_way_.clear();
  throw error;
}

// Copies what is not pinned into pinned memory and lets `copies` read from there.
HostMemory TransferEngine::stage(std::vector<Copy>& copies) {
  std::size_t size_bytes = 0;
  const auto needs_staging = [this](const Copy& copy) {
    return copy.size_bytes > 0 && !is_pinned(device_.driver(), copy.from);
  };
  for (const Copy& copy : copies) {
    size_bytes += needs_staging(copy) ? aligned(copy.size_bytes) : 0;
  }
  if (size_bytes == 0 || !pinning_->failure().empty()) {
    return {};
  }
  HostMemory staging = obtain_staging(size_bytes);
  if (!pinning_->failure().empty()) {
    return {};
  }
  std::size_t offset = 0;
  for (Copy& copy : copies) {
    if (needs_staging(copy)) {
      std::memcpy(staging.data() + offset, copy.from, copy.size_bytes);
      copy.from = staging.data() + offset;
      offset += aligned(copy.size_bytes);
      staged_bytes_.fetch_add_relaxed(copy.size_bytes);
    }
  }
  return staging;
}

HostMemory TransferEngine::obtain_staging(std::size_t size_bytes) {
  while (!staging_.empty()) {
    HostMemory staging = std::move(staging_.back());
    staging_.pop_back();
    if (staging.size_bytes() >= size_bytes) {
      return staging;
    }
  }
  return HostMemory(size_bytes, pinning_->policy());
}

}  // namespace pyecho::cuda
