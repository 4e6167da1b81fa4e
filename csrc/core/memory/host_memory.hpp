// Page-aligned host memory for slots and batches, on huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace pyecho {

// What is done to pages once, when they are made.
struct PagePolicy {
  unsigned threads = 1;  // that touch them, at most
  int numa_node = -1;    // whose memory to take if it has any; -1: whichever comes
  // Makes touched pages fit for a device (pins them, say) for as long as the result lives. May throw. Null: not needed.
  std::function<std::shared_ptr<void>(std::byte* data, std::size_t size_bytes)> prepare = {};
};

// A private anonymous mapping, zeroed. Move-only; unmapped by the destructor.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // Maps `size_bytes` (> 0, rounded up to whole pages), aligned to a huge page when it is at least one long, and touches
  // every page, so that no page fault is left for the hot path. Throws std::bad_alloc, and what policy.prepare throws.
  explicit HostMemory(std::size_t size_bytes, const PagePolicy& policy = {});
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
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::shared_ptr<void> prepared_;  // ends before the mapping
};

}  // namespace pyecho
