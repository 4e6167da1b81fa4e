#include "cuda/pinning.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/sync/outcome.hpp"

namespace pyecho::cuda {

namespace {

// Unregisters the pieces in the first `size_bytes`. A context must be current.
void unregister(const Driver& driver, std::byte* data, std::size_t size_bytes) noexcept {
  for (std::size_t offset = 0; offset < size_bytes; offset += kPinnedPieceBytes) {
    static_cast<void>(driver.try_call(&DriverApi::memory_host_unregister, data + offset));
  }
}

}  // namespace

std::shared_ptr<void> pin_pages(const Device& device, std::byte* data, std::size_t size_bytes) {
  const Driver& driver = device.driver();
  const CurrentContext current(device);
  for (std::size_t offset = 0; offset < size_bytes; offset += kPinnedPieceBytes) {
    const Result result = driver.try_call(&DriverApi::memory_host_register, data + offset,
                                          std::min(kPinnedPieceBytes, size_bytes - offset), kHostRegisterPortable);
    if (result != kSuccess) {
      unregister(driver, data, offset);
      throw driver.error_of(result, &DriverApi::memory_host_register);
    }
  }
  return {data, [&device, size_bytes](std::byte* pages) {
            try {
              const CurrentContext in_scope(device);
              unregister(device.driver(), pages, size_bytes);
            } catch (const CudaError&) {
              // The driver has ended or stayed in the parent process, so nothing is registered here.
            }
          }};
}

bool is_pinned(const Driver& driver, const void* data) noexcept {
  unsigned type = 0;
  const Result result = driver.try_call(&DriverApi::pointer_get_attribute, &type, kPointerMemoryType,
                                        reinterpret_cast<DevicePointer>(data));
  return result == kSuccess && type == kMemoryTypeHost;
}

PagePolicy Pinning::policy() {
  return {.threads = std::thread::hardware_concurrency(),
          .numa_node = device_.numa_node(),
          .prepare = [self = shared_from_this()](std::byte* data, std::size_t size_bytes) {
            return self->pin(data, size_bytes);
          }};
}

std::shared_ptr<void> Pinning::pin(std::byte* data, std::size_t size_bytes) {
  const Clock::time_point before = Clock::now();
  try {
    std::shared_ptr<void> pages = pin_pages(device_, data, size_bytes);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - before);
    pinned_bytes_.fetch_add_relaxed(size_bytes);
    pinning_ns_.fetch_add_relaxed(static_cast<std::uint64_t>(took.count()));
    return pages;
  } catch (const CudaError& error) {
    if (required_) {
      throw;
    }
    const std::scoped_lock lock(mutex_);
    if (failure_.empty()) {
      failure_ = error.what();
    }
    return nullptr;
  }
}

std::string Pinning::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

}  // namespace pyecho::cuda
