// Host memory for slots and batches, on huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "core/memory/placement.hpp"

namespace pyecho {

struct ReleasePages {
  std::size_t size_bytes = 0;
  std::shared_ptr<void> owner{};  // of the memory; null: a mapping of our own
  int descriptor = -1;            // of the file that the mapping shares
  void operator()(std::byte* data) noexcept;
};

// An anonymous mapping, private or shared, zeroed, or memory of another allocator. Move-only.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // Maps `size_bytes` (> 0, rounded up to whole pages) and touches every page, so that the hot path has no page faults.
  // Mappings of at least a huge page are aligned to one. Throws std::bad_alloc.
  explicit HostMemory(std::size_t size_bytes, const Placement& placement = {});
  // Memory that `owner` keeps alive.
  HostMemory(std::byte* data, std::size_t size_bytes, std::shared_ptr<void> owner) noexcept
      : data_(data, {.size_bytes = size_bytes, .owner = std::move(owner)}) {}

  // Maps memory that other processes can map, too: an anonymous file without a name, which only this user may open, and
  // which is gone with the last process that has it. `sparse`: no page is touched before it is used. Throws
  // std::bad_alloc, std::system_error.
  [[nodiscard]] static HostMemory shared(std::size_t size_bytes, bool sparse = false, const Placement& placement = {});
  // Maps the shared memory of another HostMemory, whose descriptor and size these are; the caller keeps the descriptor.
  // Throws std::bad_alloc.
  [[nodiscard]] static HostMemory mapped(int descriptor, std::size_t size_bytes, bool sparse = false);
  // Copies many bytes to a place in shared memory, for less than the faults of its pages would cost: new ones are
  // written through the file (which only one process at a time does), others mapped together. Returns false if the
  // system has no memory.
  [[nodiscard]] bool copy_in(std::byte* to, const std::byte* from, std::size_t size_bytes, bool is_new) const noexcept;
  // Gives the pages that lie within a part of shared memory back to the system, whichever processes map them.
  static void drop_pages(std::byte* data, std::size_t size_bytes) noexcept;
  // Returns the descriptor of shared memory, else -1.
  [[nodiscard]] int descriptor() const noexcept { return data_ ? data_.get_deleter().descriptor : -1; }

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return data_ ? data_.get_deleter().size_bytes : 0; }
  [[nodiscard]] void* owner() const noexcept { return data_.get_deleter().owner.get(); }

  // Returns the bytes that a mapping of `size_bytes` occupies.
  [[nodiscard]] static std::size_t rounded_bytes(std::size_t size_bytes) noexcept;

 private:
  [[nodiscard]] static HostMemory on_file(int descriptor, std::size_t size_bytes);
  void map_pages_now(bool are_new) const noexcept;

  std::unique_ptr<std::byte, ReleasePages> data_;
};

}  // namespace pyecho
