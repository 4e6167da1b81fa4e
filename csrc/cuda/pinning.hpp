// Pinned (page-locked) host memory: pages that the device reads directly, so that a copy needs no host thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/memory/host_memory.hpp"
#include "core/sync/atomic.hpp"
#include "cuda/device.hpp"

namespace pyecho::cuda {

// Memory is registered in pieces of this size, because the driver holds locks meanwhile that stall other processes on the
// device.
inline constexpr std::size_t kPinnedPieceBytes = std::size_t{1} << 30;

// Registers memory with the driver for as long as the result lives; the memory must outlive it. `data` is page-aligned,
// `size_bytes` > 0 and whole pages. The pages should have been touched before, which is much faster than leaving it to the
// driver. Throws CudaError; nothing stays registered then.
[[nodiscard]] std::shared_ptr<void> pin_pages(const Device& device, std::byte* data, std::size_t size_bytes);

// True if the device can read this host memory directly. A context must be current.
[[nodiscard]] bool is_pinned(const Driver& driver, const void* data) noexcept;

// Pins memory for a device, and keeps statistics and the first failure.
//
// Owned by a shared_ptr, because memory allocated later (a batch added to a pool) is pinned through it, too. Any thread.
class Pinning : public std::enable_shared_from_this<Pinning> {
 public:
  // `required`: HostMemory throws CudaError if its pages cannot be pinned. Otherwise they stay pageable, and failure()
  // returns the reason.
  Pinning(const Device& device, bool required) : device_(device), required_(required) {}

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  // Returns a policy for memory near the device, pinned for it.
  [[nodiscard]] PagePolicy policy();

  // Returns the reason why pages first stayed pageable; "" if all were pinned.
  [[nodiscard]] std::string failure() const;
  // Bytes pinned so far, and the time that pinning them took.
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept { return pinned_bytes_.load_relaxed(); }
  [[nodiscard]] std::uint64_t pinning_ns() const noexcept { return pinning_ns_.load_relaxed(); }

 private:
  std::shared_ptr<void> pin(std::byte* data, std::size_t size_bytes);

  const Device& device_;
  bool required_;
  mutable std::mutex mutex_;
  std::string failure_;  // guarded by mutex_
  Atomic<std::uint64_t> pinned_bytes_;
  Atomic<std::uint64_t> pinning_ns_;
};

}  // namespace pyecho::cuda
