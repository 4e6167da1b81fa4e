// One row of an array whose elements do not lie side by side: a crop, a transposed image, every second column.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pyecho::bindings {

// How the elements of a row lie: as pieces of contiguous bytes, in as few nested loops as possible. Copied in C order.
class StridedRow {
 public:
  struct Axis {
    std::ptrdiff_t extent;
    std::ptrdiff_t stride_bytes;
  };

  // `shape` and `strides` (in bytes) of a row, of `item_bytes` for each element.
  StridedRow(std::span<const std::ptrdiff_t> shape, std::span<const std::ptrdiff_t> strides, std::size_t item_bytes);

  // Copies the row whose first element is at `from`; no Python. `stream`: as copy_bytes().
  void copy(std::byte* to, const std::byte* from, bool stream) const noexcept { copy(0, to, from, stream); }

 private:
  std::byte* copy(std::size_t axis, std::byte* to, const std::byte* from, bool stream) const noexcept;

  std::vector<Axis> axes_;  // outermost first; none if the row is one piece
  std::size_t piece_bytes_;
};

}  // namespace pyecho::bindings
