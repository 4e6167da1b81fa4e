// Page-aligned host memory for slots and batches, on huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace pyecho {

// How new pages are placed, touched and prepared.
struct PagePolicy {
  unsigned threads = 1;  // at most this many touch the pages
  int numa_node = -1;    // preferred NUMA node; -1: no preference
  // Prepares touched pages for a device (for example, pins them) for as long as the result lives. May throw. Optional.
  std::function<std::shared_ptr<void>(std::byte* data, std::size_t size_bytes)> prepare = {};
};

// A private anonymous mapping, zeroed. Move-only; unmapped by the destructor.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // Maps `size_bytes` (> 0, rounded up to whole pages) and touches every page, so that the hot path has no page faults.
  // Mappings of at least a huge page are aligned to one. Throws std::bad_alloc, and any exception of policy.prepare.
  explicit HostMemory(std::size_t size_bytes, const PagePolicy& policy = {});
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

  // Returns the bytes that a mapping of `size_bytes` occupies.
  [[nodiscard]] static std::size_t rounded_bytes(std::size_t size_bytes) noexcept;
  // Returns the number of mappings made so far in this process. Tests assert that it does not grow.
  [[nodiscard]] static std::uint64_t allocations() noexcept;

 private:
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::shared_ptr<void> prepared_;  // destroyed before the memory is unmapped
};

}  // namespace pyecho
