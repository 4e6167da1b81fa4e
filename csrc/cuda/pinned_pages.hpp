// Pinned (page-locked) host memory: pages that the device reads by itself, so that a copy needs no host thread.
#pragma once

#include <cstddef>

#include "cuda/device.hpp"

namespace pyecho::cuda {

// Registers memory of ours with the driver for as long as it lives; the memory must outlive it. The pages should have been
// touched before, which is much faster than leaving it to the driver. Neither copied nor moved.
//
// Registration happens in pieces, because the driver holds locks meanwhile that stall other processes on the device.
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
  std::size_t registered_bytes_ = 0;  // whole pieces, save for the last one
};

// Whether the device can read this host memory by itself. A context must be current.
[[nodiscard]] bool is_pinned(const Driver& driver, const void* data) noexcept;

}  // namespace pyecho::cuda
