// Page-aligned host memory for slots and batches, on huge pages where the system grants them.
#pragma once

#include <cstddef>
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

struct UnmapPages {
  std::size_t size_bytes = 0;
  std::shared_ptr<void> prepared{};  // destroyed before the memory is unmapped
  void operator()(std::byte* data) noexcept;
};

// A private anonymous mapping, zeroed. Move-only; unmapped by the destructor.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // Maps `size_bytes` (> 0, rounded up to whole pages) and touches every page, so that the hot path has no page faults.
  // Mappings of at least a huge page are aligned to one. Throws std::bad_alloc, and any exception of policy.prepare.
  explicit HostMemory(std::size_t size_bytes, const PagePolicy& policy = {});

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return data_ ? data_.get_deleter().size_bytes : 0; }

  // Returns the bytes that a mapping of `size_bytes` occupies.
  [[nodiscard]] static std::size_t rounded_bytes(std::size_t size_bytes) noexcept;

 private:
  std::unique_ptr<std::byte, UnmapPages> data_;
};

}  // namespace pyecho
