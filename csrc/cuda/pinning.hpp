// How arenas are pinned for a device, and how that went.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/memory/host_memory.hpp"
#include "core/sync/atomic.hpp"
#include "cuda/device.hpp"

namespace pyecho::cuda {

// Owned by a shared_ptr, because memory that is made later (a batch added to a pool) reports here too. Any thread.
class Pinning : public std::enable_shared_from_this<Pinning> {
 public:
  // `required`: HostMemory throws CudaError if its pages cannot be pinned; else they stay pageable, and failure() says why.
  Pinning(const Device& device, bool required) : device_(device), required_(required) {}

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  // Memory near the device, pinned for it.
  [[nodiscard]] PagePolicy policy();

  // Why pages stayed pageable, the first time; "" if none did.
  [[nodiscard]] std::string failure() const;
  // What was pinned so far, and the time that registering it took.
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
