// On which NUMA nodes memory lies. Slots are written and read by threads of all nodes, so their pages take turns; a
// batch is read by its consumer, so its pages lie there. Without that, pages lie where the helper thread ran that
// touched them first.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace pyecho {

class Placement {
 public:
  // Wherever the system puts it.
  Placement() noexcept = default;
  // In turns on these nodes; on less than two wherever the system puts it.
  [[nodiscard]] static Placement interleaved(std::span<const unsigned> nodes) noexcept;
  // On this node while it has memory, then on others.
  [[nodiscard]] static Placement preferred(unsigned node) noexcept;

  // In turns on all nodes of the machine that this process may use.
  [[nodiscard]] static Placement for_slots() noexcept;
  // On the node of the calling thread, on a machine of several.
  [[nodiscard]] static Placement for_batches() noexcept;

  // Says so for pages that nobody has touched, at a page's beginning. A refusal, as in some containers, is passed over.
  void apply(std::byte* pages, std::size_t size_bytes) const noexcept;

 private:
  static constexpr std::size_t kMostNodes = 1024;  // as in Linux
  static constexpr std::size_t kBits = 8 * sizeof(unsigned long);

  void add(unsigned node) noexcept;

  int mode_ = 0;
  std::array<unsigned long, kMostNodes / kBits> nodes_{};
};

}  // namespace pyecho
