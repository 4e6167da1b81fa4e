// Pins memory for a device, and keeps statistics and the first failure.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/memory/host_memory.hpp"
#include "core/sync/atomic.hpp"
#include "cuda/device.hpp"

namespace pyecho::cuda {

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
