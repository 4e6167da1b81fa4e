// Checks of an item against its operations, and the origin of each element of a row: operations of geometry with their
// random numbers, axis by axis.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/ops/operation.hpp"

namespace pyecho::ops {

inline constexpr std::size_t kMaxAxes = 32;

// Returns the type that `operations` make of an item. Extents are kVariable where the item's decide. Throws
// std::invalid_argument, with operation and sizes in its message, if no item of the type can be transformed.
ArrayType checked_output(ArrayType item, std::span<const Operation> operations);

// Returns the sizes to which kResize or kResizedCrop resamples so many rows and columns.
struct Sizes {
  std::uint64_t rows;
  std::uint64_t columns;
};
[[nodiscard]] Sizes resampled_sizes(const Operation& operation, std::uint64_t rows, std::uint64_t columns) noexcept;

[[nodiscard]] constexpr bool resamples(Kind kind) noexcept {
  return kind == Kind::kResizedCrop || kind == Kind::kResize;
}

// Outputs along one axis: output i is input at(i) if begin <= i < end, else padding.
struct Window {
  std::int64_t extent;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t first;
  std::int64_t step;  // 1 or -1

  [[nodiscard]] static constexpr Window all(std::int64_t extent) noexcept { return {extent, 0, extent, 0, 1}; }
  [[nodiscard]] constexpr std::int64_t at(std::int64_t i) const noexcept { return first + step * i; }
  // True if no output is padding.
  [[nodiscard]] constexpr bool inside() const noexcept { return begin == 0 && end == extent; }

  // Takes a part; padding where it lies outside.
  void crop(std::int64_t place, std::int64_t size) noexcept;
  void take_middle(std::int64_t size) noexcept { crop((extent - size) / 2, size); }
  void flip() noexcept;
};

// From what one use of an item draws.
struct UseKey {
  std::uint64_t use = 0;      // key_of_use()
  std::uint64_t item = 0;     // key_of_item(): the same for all uses of an item
  std::uint64_t ordinal = 0;  // which of them
  std::uint64_t extent = 0;   // of the axis on which a kWindow counts anchors; 0: that of the leaf itself

  bool operator==(const UseKey&) const = default;
};

// The anchors of a kWindow on an axis of `extent`.
struct Anchors {
  std::int64_t first;
  std::int64_t count;  // 0: the axis is too short
  std::int64_t stride;

  Anchors(const Operation& window, std::int64_t extent) noexcept;
};
// Returns the offsets of a kWindow.
[[nodiscard]] std::span<const double> offsets_of(const Operation& window) noexcept;

struct Axis {
  Window source;           // what of the item is resampled
  std::int64_t resampled;  // to this size; 0: it is not
  Window window;           // outputs of what was resampled, of the item if it is not
  std::int64_t cut_begin;  // kCutout overwrites outputs from here
  std::int64_t cut_end;    // to here

  // kWindow, unless its elements lie side by side: input at(i) of `window` is the element at this offset from `anchor`,
  // or the first or last one of `extent`.
  const double* offsets;  // null: as it is
  std::int64_t anchor;
  std::int64_t extent;

  [[nodiscard]] std::int64_t at(std::int64_t i) const noexcept {
    const std::int64_t place = window.at(i);
    return offsets == nullptr
               ? place
               : std::clamp<std::int64_t>(anchor + static_cast<std::int64_t>(offsets[place]), 0, extent - 1);
  }
};

struct Geometry {
  std::array<Axis, kMaxAxes + 1> axes;  // the first ones, as many as the item has, and one of one element
  bool cut;
};

// `operations` are of geometry, and passed checked_output().
[[nodiscard]] Geometry geometry_of(std::span<const Operation> operations, std::span<const std::uint64_t> shape,
                                   const UseKey& key) noexcept;

}  // namespace pyecho::ops
