#include "bindings/items/strided_row.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/memory/stream_copy.hpp"

namespace pyecho::bindings {
namespace {

constexpr std::size_t kMaxSmallBytes = 16;  // pieces of at most this size are copied inline

// Rows written together if pieces in the same cache line go to different rows (a transposed matrix), so that each line
// is fetched only once.
constexpr std::ptrdiff_t kTile = 16;
constexpr std::ptrdiff_t kUnrolled = 8;  // for single bytes, twice as fast as a plain loop
constexpr std::ptrdiff_t kLineBytes = 64;

using Axis = StridedRow::Axis;
using CopyPlane = void (*)(std::byte* to, const std::byte* from, Axis outer, Axis inner);

template <std::size_t kBytes>
void copy_plane(std::byte* to, const std::byte* from, Axis outer, Axis inner) {
  const std::ptrdiff_t to_stride = inner.extent * static_cast<std::ptrdiff_t>(kBytes);
  if (inner.stride_bytes == 0) {  // a broadcast axis: the piece is read once
    for (std::ptrdiff_t i = 0; i < outer.extent; ++i) {
      std::array<std::byte, kMaxSmallBytes> piece{};
      std::memcpy(piece.data(), from + i * outer.stride_bytes, kBytes);
      for (std::byte* const end = to + to_stride; to != end; to += kBytes) {
        std::memcpy(to, piece.data(), kBytes);
      }
    }
    return;
  }
  const auto copy_line = [](std::byte* line, const std::byte* source, std::ptrdiff_t pieces, std::ptrdiff_t line_stride,
                            std::ptrdiff_t source_stride) {
    std::ptrdiff_t i = 0;
    for (; i + kUnrolled <= pieces; i += kUnrolled) {
      for (std::ptrdiff_t k = i; k < i + kUnrolled; ++k) {
        std::memcpy(line + k * line_stride, source + k * source_stride, kBytes);
      }
    }
    for (; i < pieces; ++i) {
      std::memcpy(line + i * line_stride, source + i * source_stride, kBytes);
    }
  };
  const bool shares_lines = outer.stride_bytes != 0 && std::abs(outer.stride_bytes) < kLineBytes;
  if (!shares_lines || std::abs(inner.stride_bytes) < kLineBytes) {
    for (std::ptrdiff_t i = 0; i < outer.extent; ++i) {
      copy_line(to + i * to_stride, from + i * outer.stride_bytes, inner.extent, kBytes, inner.stride_bytes);
    }
    return;
  }
  for (std::ptrdiff_t begin = 0; begin < outer.extent; begin += kTile) {
    const std::ptrdiff_t rows = std::min(kTile, outer.extent - begin);
    for (std::ptrdiff_t i = 0; i < inner.extent; ++i) {
      copy_line(to + begin * to_stride + i * static_cast<std::ptrdiff_t>(kBytes),
                from + begin * outer.stride_bytes + i * inner.stride_bytes, rows, to_stride, outer.stride_bytes);
    }
  }
}

constexpr auto kCopyPlane = []<std::size_t... kBytes>(std::index_sequence<kBytes...>) {
  return std::array<CopyPlane, sizeof...(kBytes)>{&copy_plane<kBytes>...};
}(std::make_index_sequence<kMaxSmallBytes + 1>());

}  // namespace

void StridedRow::describe(std::span<const std::ptrdiff_t> shape, std::span<const std::ptrdiff_t> strides,
                          std::size_t item_bytes) {
  axes_.clear();
  piece_bytes_ = item_bytes;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 1) {
      continue;
    }
    if (axes_.empty() && std::cmp_equal(strides[axis], piece_bytes_)) {
      piece_bytes_ *= static_cast<std::size_t>(shape[axis]);
    } else if (!axes_.empty() && strides[axis] == axes_.back().stride_bytes * axes_.back().extent) {
      axes_.back().extent *= shape[axis];
    } else {
      axes_.push_back({.extent = shape[axis], .stride_bytes = strides[axis]});
    }
  }
  std::ranges::reverse(axes_);
}

std::byte* StridedRow::copy(std::size_t axis, std::byte* to, const std::byte* from, bool stream) const noexcept {
  const std::size_t left = axes_.size() - axis;
  if (left == 0) {
    copy_bytes(to, from, piece_bytes_, stream && axes_.empty());
    return to + piece_bytes_;
  }
  const Axis outer = left == 1 ? Axis{.extent = 1, .stride_bytes = 0} : axes_[axis];
  if (piece_bytes_ <= kMaxSmallBytes && left <= 2) {
    const Axis inner = axes_.back();
    kCopyPlane[piece_bytes_](to, from, outer, inner);
    return to + static_cast<std::size_t>(outer.extent * inner.extent) * piece_bytes_;
  }
  for (std::ptrdiff_t i = 0; i < axes_[axis].extent; ++i) {
    to = copy(axis + 1, to, from + i * axes_[axis].stride_bytes, stream);
  }
  return to;
}

}  // namespace pyecho::bindings
