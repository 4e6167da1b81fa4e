// What a sequence of operations demands of an item, and what type it makes of it.
#pragma once

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

}  // namespace pyecho::ops
