#include "cuda/pinned_pages.hpp"

#include <algorithm>

namespace pyecho::cuda {

PinnedPages::PinnedPages(const Device& device, std::byte* data, std::size_t size_bytes) : device_(device), data_(data) {
  const CurrentContext current(device);
  while (registered_bytes_ < size_bytes) {
    const std::size_t piece = std::min(kPieceBytes, size_bytes - registered_bytes_);
    const Result result = device.driver().try_call(&DriverApi::memory_host_register, data + registered_bytes_, piece,
                                                   kHostRegisterPortable);
    if (result != kSuccess) {
      unregister();
      throw device.driver().error_of(result, &DriverApi::memory_host_register);
    }
    registered_bytes_ += piece;
  }
}

PinnedPages::~PinnedPages() {
  try {
    const CurrentContext current(device_);
    unregister();
  } catch (const CudaError&) {
    // The driver has ended or stayed in the parent process, so nothing is registered here.
  }
}

void PinnedPages::unregister() noexcept {
  for (std::size_t offset = 0; offset < registered_bytes_; offset += kPieceBytes) {
    static_cast<void>(device_.driver().try_call(&DriverApi::memory_host_unregister, data_ + offset));
  }
  registered_bytes_ = 0;
}

bool is_pinned(const Driver& driver, const void* data) noexcept {
  unsigned type = 0;
  const Result result = driver.try_call(&DriverApi::pointer_get_attribute, &type, kPointerMemoryType,
                                        reinterpret_cast<DevicePointer>(data));
  return result == kSuccess && type == kMemoryTypeHost;
}

}  // namespace pyecho::cuda
