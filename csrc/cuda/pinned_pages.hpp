// Pinned (page-locked) host memory: pages that the device reads directly, so that a copy needs no host thread.
#pragma once

#include <cstddef>

#include "cuda/device.hpp"

namespace pyecho::cuda {

// Registers memory with the driver until the destructor runs; the memory must outlive this object. The pages should have
// been touched before, which is much faster than leaving it to the driver. Neither copyable nor movable.
//
// Registers in pieces, because the driver holds locks meanwhile that stall other processes on the device.
class PinnedPages {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

  // `data` is page-aligned, `size_bytes` > 0 and whole pages. Throws CudaError; nothing stays registered then.
  PinnedPages(const Device& device, std::byte* data, std::size_t size_bytes);
  ~PinnedPages();
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

 private:
  void unregister() noexcept;

  const Device& device_;
  std::byte* data_;
  std::size_t registered_bytes_ = 0;  // whole pieces, except for the last one
};

// True if the device can read this host memory directly. A context must be current.
[[nodiscard]] bool is_pinned(const Driver& driver, const void* data) noexcept;

}  // namespace pyecho::cuda
