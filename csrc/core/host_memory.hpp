// Page-aligned host memory for slots and batches, on huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyecho {

// A private anonymous mapping, zeroed. Move-only; unmapped by the destructor.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // Maps `size_bytes` (> 0, rounded up to whole pages), aligned to a huge page when it is at least one long, and touches
  // every page with up to `threads` threads, so that no page fault is left for the hot path. Throws std::bad_alloc.
  HostMemory(std::size_t size_bytes, unsigned threads);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

  // What a mapping of `size_bytes` occupies.
  [[nodiscard]] static std::size_t rounded_bytes(std::size_t size_bytes) noexcept;
  // Mappings made so far in this process, all objects together: tests assert that it stands still.
  [[nodiscard]] static std::uint64_t allocations() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace pyecho
