// Checks of an item against its operations, and the origin of each element of a row: operations of geometry with their
// random numbers, axis by axis.
#pragma once

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

struct Axis {
  Window source;           // what of the item is resampled
  std::int64_t resampled;  // to this size; 0: it is not
  Window window;           // outputs of what was resampled, of the item if it is not
  std::int64_t cut_begin;  // kCutout overwrites outputs from here
  std::int64_t cut_end;    // to here
};

struct Geometry {
  std::array<Axis, kMaxAxes> axes;  // the first ones, as many as the item has
  bool cut;
};

// `operations` are of geometry, and passed checked_output().
[[nodiscard]] Geometry geometry_of(std::span<const Operation> operations, std::span<const std::uint64_t> shape,
                                   std::uint64_t key) noexcept;

}  // namespace pyecho::ops
