// Host memory for slots and batches, on huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace pyecho {

// A private anonymous mapping, zeroed, or memory of another allocator. Move-only; unmapped or let go by the destructor.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // Maps `size_bytes` (> 0, rounded up to whole pages) and touches every page, so that the hot path has no page faults.
  // Mappings of at least a huge page are aligned to one. Throws std::bad_alloc.
  explicit HostMemory(std::size_t size_bytes);
  // Memory that `owner` keeps alive.
  HostMemory(std::byte* data, std::size_t size_bytes, std::shared_ptr<void> owner) noexcept
      : data_(data), size_bytes_(size_bytes), owner_(std::move(owner)) {}
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::shared_ptr<void>& owner() const noexcept { return owner_; }

  // Returns the bytes that a mapping of `size_bytes` occupies.
  [[nodiscard]] static std::size_t rounded_bytes(std::size_t size_bytes) noexcept;
  // Returns the number of mappings made so far in this process. Tests assert that it does not grow.
  [[nodiscard]] static std::uint64_t allocations() noexcept;

 private:
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::shared_ptr<void> owner_;  // of the memory; null: the mapping is this object's own
};

}  // namespace pyecho
