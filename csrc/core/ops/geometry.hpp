// Where the elements of a row come from: operations of geometry with their random numbers, axis by axis.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/ops/checks.hpp"
#include "core/ops/operation.hpp"

namespace pyecho::ops {

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

  void crop(std::int64_t place, std::int64_t size) noexcept;
  void flip() noexcept;
  void pad(std::int64_t size) noexcept;
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

// `operations` are of geometry, with at most one kCutout, which comes last.
[[nodiscard]] Geometry geometry_of(std::span<const Operation> operations, std::span<const std::uint64_t> shape,
                                   std::uint64_t key) noexcept;

}  // namespace pyecho::ops
