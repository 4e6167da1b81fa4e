// Copies one leaf of many rows from their slots into a batch.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "core/memory/stream_copy.hpp"
#include "core/plan/plan_config.hpp"

namespace pyecho {

// Up to this size a leaf is copied by code of our own.
inline constexpr std::size_t kShortBytes = 128;

// Copies a leaf of at least kBytes by so many at a time, of which the last may overlap those before. Sizes that the
// compiler knows save the call of memcpy, which costs more than a short copy.
template <std::size_t kBytes>
inline void copy_short_leaf(std::byte* to, const std::byte* from, std::size_t stride, std::span<const Use> rows,
                            std::size_t size_bytes) noexcept {
  for (const Use& use : rows) {
    const std::byte* const leaf = from + use.slot * stride;
    for (std::size_t offset = 0; offset + kBytes < size_bytes; offset += kBytes) {
      std::memcpy(to + offset, leaf + offset, kBytes);
    }
    std::memcpy(to + size_bytes - kBytes, leaf + size_bytes - kBytes, kBytes);
    to += size_bytes;
  }
}

// Copies one leaf of rows, which lie `stride` bytes apart by slot, side by side.
inline void copy_leaf(std::byte* to, const std::byte* from, std::size_t stride, std::span<const Use> rows,
                      std::size_t size_bytes, bool stream) noexcept {
  if (size_bytes > kShortBytes) {
    for (const Use& use : rows) {
      copy_bytes(to, from + use.slot * stride, size_bytes, stream);
      to += size_bytes;
    }
  } else if (size_bytes >= 16) {
    copy_short_leaf<16>(to, from, stride, rows, size_bytes);
  } else if (size_bytes >= 8) {
    copy_short_leaf<8>(to, from, stride, rows, size_bytes);
  } else if (size_bytes >= 4) {
    copy_short_leaf<4>(to, from, stride, rows, size_bytes);
  } else if (size_bytes > 0) {
    copy_short_leaf<1>(to, from, stride, rows, size_bytes);
  }
}

}  // namespace pyecho
