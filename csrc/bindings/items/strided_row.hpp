// One row of an array with elements that are not contiguous: a crop, a transposed image, every second column.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pyecho::bindings {

// Describes a row as pieces of contiguous bytes, in as few nested loops as possible. Copies in C order. An object that
// describes one row after the other allocates for the first ones only.
class StridedRow {
 public:
  struct Axis {
    std::ptrdiff_t extent;
    std::ptrdiff_t stride_bytes;
  };

  // `shape` and `strides` (in bytes) of a row; `item_bytes`: size of an element.
  void describe(std::span<const std::ptrdiff_t> shape, std::span<const std::ptrdiff_t> strides, std::size_t item_bytes);

  // Copies the row whose first element is at `from`. Calls no Python. `stream`: see copy_bytes().
  void copy(std::byte* to, const std::byte* from, bool stream) const noexcept { copy(0, to, from, stream); }

 private:
  std::byte* copy(std::size_t axis, std::byte* to, const std::byte* from, bool stream) const noexcept;

  std::vector<Axis> axes_;  // outermost first; none if the row is one piece
  std::size_t piece_bytes_ = 0;
};

}  // namespace pyecho::bindings
