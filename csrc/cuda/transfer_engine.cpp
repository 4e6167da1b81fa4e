#include "cuda/transfer_engine.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <utility>

#include "cuda/pinned_pages.hpp"

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
  device_.driver().call(&DriverApi::stream_wait_event, stream, event_.handle(), kLaunchDefault);
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
  } catch (const std::exception& error) {
    // Transfers remain only if no context could be made current; every other failure has called abandon().
    const auto* const failure = dynamic_cast<const CudaError*>(&error);
    if (!under_way_.empty() && (failure == nullptr || !torn_down(failure->code()))) {
      lose();
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
  HostMemory staging = stage();
  // Allocates everything before the first copy is issued, because an issued copy without an owner cannot be cancelled.
  auto transfer = std::make_shared<Transfer>(device_, events_->take());
  under_way_.push_back({.transfer = transfer, .source = std::move(source), .staging = std::move(staging)});
  std::uint64_t bytes = 0;
  try {
    for (const Copy& copy : copies_) {
      if (copy.size_bytes > 0) {
        driver.call(&DriverApi::memory_copy_to_device_async, copy.to, static_cast<const void*>(copy.from),
                    copy.size_bytes, device_.stream());
        bytes += copy.size_bytes;
      }
    }
    driver.call(&DriverApi::event_record, transfer->event_.handle(), device_.stream());
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
      abandon();
      throw device_.driver().error_of(result, &DriverApi::event_query);
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
    abandon();
    throw device_.driver().error_of(result, &DriverApi::event_synchronize);
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
    lose();
  }
}

// Leaks the sources, because the device may still read them at any time. They stay reachable, so that leak checkers do
// not report them.
void TransferEngine::lose() {
  struct Lost {
    std::mutex mutex;
    std::list<std::deque<UnderWay>> under_way;
  };
  static auto* const lost = new Lost;
  const std::scoped_lock lock(lost->mutex);
  lost->under_way.emplace_back().swap(under_way_);
}

// Copies unpinned sources into pinned memory and redirects `copies_` to it.
HostMemory TransferEngine::stage() {
  if (!pinning_->failure().empty()) {
    return {};
  }
  // Queries each source only once, because another thread may pin or unpin it meanwhile.
  unpinned_.clear();
  std::size_t size_bytes = 0;
  for (Copy& copy : copies_) {
    if (copy.size_bytes > 0 && !is_pinned(device_.driver(), copy.from)) {
      unpinned_.push_back(&copy);
      size_bytes += aligned(copy.size_bytes);
    }
  }
  if (unpinned_.empty()) {
    return {};
  }
  HostMemory staging = obtain_staging(size_bytes);
  if (!pinning_->failure().empty()) {
    return {};
  }
  std::size_t offset = 0;
  for (Copy* const copy : unpinned_) {
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
