#include "core/memory/placement.hpp"

#ifdef __linux__
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <vector>

#include "core/memory/machine.hpp"

namespace pyecho {
namespace {

const std::vector<unsigned>& all_nodes() noexcept {
  static const std::vector<unsigned> nodes = [] {
    try {
      return memory_nodes();
    } catch (const std::exception&) {  // no memory for them
      return std::vector<unsigned>();
    }
  }();
  return nodes;
}

}  // namespace

void Placement::add(unsigned node) noexcept {
  if (node < kMostNodes) {
    nodes_[node / kBits] |= 1UL << (node % kBits);
  }
}

#ifdef __linux__

Placement Placement::interleaved(std::span<const unsigned> nodes) noexcept {
  Placement placement;
  placement.mode_ = nodes.size() < 2 ? MPOL_DEFAULT : MPOL_INTERLEAVE;
  for (const unsigned node : nodes) {
    placement.add(node);
  }
  return placement;
}

Placement Placement::preferred(unsigned node) noexcept {
  Placement placement;
  placement.mode_ = MPOL_PREFERRED;
  placement.add(node);
  return placement;
}

Placement Placement::for_batches() noexcept {
  unsigned node = 0;
  const bool several = all_nodes().size() > 1 && syscall(SYS_getcpu, nullptr, &node, nullptr) == 0;
  return several ? preferred(node) : Placement();
}

void Placement::apply(std::byte* pages, std::size_t size_bytes) const noexcept {
  if (mode_ != MPOL_DEFAULT) {  // the kernel takes one bit less than it is told
    static_cast<void>(syscall(SYS_mbind, pages, size_bytes, mode_, nodes_.data(), kMostNodes + 1, 0));
  }
}

#else

Placement Placement::interleaved(std::span<const unsigned> /*nodes*/) noexcept { return {}; }
Placement Placement::preferred(unsigned /*node*/) noexcept { return {}; }
Placement Placement::for_batches() noexcept { return {}; }
void Placement::apply(std::byte* /*pages*/, std::size_t /*size_bytes*/) const noexcept {}

#endif

Placement Placement::for_slots() noexcept { return interleaved(all_nodes()); }

}  // namespace pyecho
