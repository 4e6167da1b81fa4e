#include "cuda/transfer_engine.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace pyecho::cuda {
namespace {

// Alignment of the pieces of a staging block, the same as that of device allocations.
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
  device_.driver().call(&DriverApi::stream_wait_event, stream, event_.get(), kLaunchDefault);
}

TransferEngine::TransferEngine(const Device& device, unsigned depth, unsigned kept)
    : device_(device),
      depth_(depth),
      pinning_(std::make_shared<Pinning>(device, false)),
      events_(std::make_shared<EventPool>(device)) {
  assert(depth >= 1);
  if (kept > 0) {
    const CurrentContext current(device);
    events_->prepare(depth + kept);
  }
}

TransferEngine::~TransferEngine() {
  try {
    drain();
  } catch (const CudaError& error) {
    // Transfers remain only if no context could be made current; every other failure has called abandon().
    if (!torn_down(error.code())) {
      lose(std::exchange(under_way_, {}));
    }
  }
}

std::shared_ptr<const Transfer> TransferEngine::start(std::span<const Copy> copies, std::shared_ptr<void> source) {
  poll();
  while (under_way_.size() >= depth_) {
    finish_oldest(&DriverApi::event_synchronize);
  }
  const CurrentContext current(device_);
  const Driver& driver = device_.driver();
  std::vector<Copy> staged(copies.begin(), copies.end());
  HostMemory staging = stage(staged);
  // Allocates everything before the first copy is issued, because an issued copy without an owner cannot be cancelled.
  auto transfer = std::make_shared<Transfer>(device_, events_->take());
  under_way_.push_back({.transfer = transfer, .source = std::move(source), .staging = std::move(staging)});
  std::uint64_t bytes = 0;
  try {
    for (const Copy& copy : staged) {
      if (copy.size_bytes > 0) {
        driver.call(&DriverApi::memory_copy_to_device_async, copy.to, static_cast<const void*>(copy.from),
                    copy.size_bytes, device_.stream());
        bytes += copy.size_bytes;
      }
    }
    driver.call(&DriverApi::event_record, transfer->event_.get(), device_.stream());
  } catch (...) {
    abandon();
    throw;
  }
  bytes_.fetch_add_relaxed(bytes);
  return transfer;
}

std::shared_ptr<const Transfer> TransferEngine::mark() {
  const CurrentContext current(device_);
  Event event = events_->take();
  device_.driver().call(&DriverApi::event_record, event.get(), device_.stream());
  return std::make_shared<Transfer>(device_, std::move(event));
}

void TransferEngine::poll() {
  while (!under_way_.empty() && finish_oldest(&DriverApi::event_query)) {
  }
}

void TransferEngine::drain() {
  while (!under_way_.empty()) {
    finish_oldest(&DriverApi::event_synchronize);
  }
}

// Asks for the oldest transfer (event_query) or waits for it (event_synchronize). Returns false if it is not done yet.
bool TransferEngine::finish_oldest(Result (*DriverApi::*ask)(EventHandle)) {
  const CurrentContext current(device_);
  const Result result = device_.driver().try_call(ask, under_way_.front().transfer->event_.get());
  if (result == kNotReady) {
    return false;
  }
  if (result != kSuccess) {
    abandon();
    throw device_.driver().error_of(result, ask);
  }
  retire_oldest();
  return true;
}

void TransferEngine::retire_oldest() {
  UnderWay oldest = std::move(under_way_.front());
  under_way_.pop_front();
  oldest.transfer->done_.store_release(1);
  if (oldest.staging.data() != nullptr) {
    staging_.push_back(std::move(oldest.staging));
  }
}

// After a failed call it is unknown which copies still run. None does once the stream is idle. If even waiting for that
// fails, the context is probably broken, but not certainly, so the sources are leaked.
void TransferEngine::abandon() {
  const Result result = device_.driver().try_call(&DriverApi::stream_synchronize, device_.stream());
  if (result == kSuccess) {
    while (!under_way_.empty()) {
      retire_oldest();
    }
  } else if (torn_down(result)) {
    under_way_.clear();
  } else {
    lose(std::exchange(under_way_, {}));
  }
}

// Copies unpinned sources into pinned memory and redirects `copies` to it.
HostMemory TransferEngine::stage(std::vector<Copy>& copies) {
  // Queries each source only once, because another thread may pin or unpin it meanwhile.
  std::vector<Copy*> unpinned;
  std::size_t size_bytes = 0;
  for (Copy& copy : copies) {
    if (copy.size_bytes > 0 && !is_pinned(device_.driver(), copy.from)) {
      unpinned.push_back(&copy);
      size_bytes += aligned(copy.size_bytes);
    }
  }
  if (unpinned.empty() || !pinning_->failure().empty()) {
    return {};
  }
  HostMemory staging = obtain_staging(size_bytes);
  if (!pinning_->failure().empty()) {
    return {};
  }
  std::size_t offset = 0;
  for (Copy* const copy : unpinned) {
    std::memcpy(staging.data() + offset, copy->from, copy->size_bytes);
    copy->from = staging.data() + offset;
    offset += aligned(copy->size_bytes);
    staged_bytes_.fetch_add_relaxed(copy->size_bytes);
  }
  return staging;
}

// Returns the smallest idle block that is large enough, or else a new one in place of the smallest. So there are at most
// `depth_` blocks, and for any mix of sizes allocation eventually stops.
HostMemory TransferEngine::obtain_staging(std::size_t size_bytes) {
  std::ranges::sort(staging_, {}, &HostMemory::size_bytes);
  const auto fitting = std::ranges::lower_bound(staging_, size_bytes, {}, &HostMemory::size_bytes);
  if (fitting != staging_.end()) {
    HostMemory staging = std::move(*fitting);
    staging_.erase(fitting);
    return staging;
  }
  if (!staging_.empty()) {
    staging_.erase(staging_.begin());
  }
  return HostMemory(size_bytes, pinning_->policy());
}

}  // namespace pyecho::cuda
