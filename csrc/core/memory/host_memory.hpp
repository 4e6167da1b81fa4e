// Host memory for slots and batches, on huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace pyecho {

struct ReleasePages {
  std::size_t size_bytes = 0;
  std::shared_ptr<void> owner{};  // of the memory; null: a mapping of our own
  void operator()(std::byte* data) noexcept;
};

// A private anonymous mapping, zeroed, or memory of another allocator. Move-only.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // Maps `size_bytes` (> 0, rounded up to whole pages) and touches every page, so that the hot path has no page faults.
  // Mappings of at least a huge page are aligned to one. Throws std::bad_alloc.
  explicit HostMemory(std::size_t size_bytes);
  // Memory that `owner` keeps alive.
  HostMemory(std::byte* data, std::size_t size_bytes, std::shared_ptr<void> owner) noexcept
      : data_(data, {.size_bytes = size_bytes, .owner = std::move(owner)}) {}

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return data_ ? data_.get_deleter().size_bytes : 0; }
  [[nodiscard]] void* owner() const noexcept { return data_.get_deleter().owner.get(); }

  // Returns the memory of this machine, swap included.
  [[nodiscard]] static std::size_t machine_bytes() noexcept;
  // Returns the bytes that a mapping of `size_bytes` occupies.
  [[nodiscard]] static std::size_t rounded_bytes(std::size_t size_bytes) noexcept;

 private:
  std::unique_ptr<std::byte, ReleasePages> data_;
};

}  // namespace pyecho
