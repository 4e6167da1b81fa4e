// One name for both forms of IndexRing's calls. A span of one number uses the form for one.
#pragma once

#include <cstdint>
#include <span>

#include "core/sync/index_ring.hpp"

namespace pyecho::test {

template <class Ring>
std::uint32_t push_some(Ring& ring, std::span<const std::uint32_t> indices) {
  return indices.size() != 1 ? ring.try_push(indices) : ring.try_push(indices[0]) == Outcome::kOk ? 1 : 0;
}

template <class Ring>
std::uint32_t pop_some(Ring& ring, std::span<std::uint32_t> indices) {
  return indices.size() != 1 ? ring.try_pop(indices) : ring.try_pop(indices[0]) == Outcome::kOk ? 1 : 0;
}

}  // namespace pyecho::test
