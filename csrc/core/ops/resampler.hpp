// Rows of a resampled image. Rows are summed first, then columns, so that rows which no output needs are never read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ops/geometry.hpp"
#include "core/ops/operation.hpp"
#include "core/ops/taps.hpp"

namespace pyecho::ops {

class Resampler {
 public:
  // Pixels consist of `channels` elements.
  Resampler(const Axis& rows, const Axis& columns, bool nearest, const ArrayType& item, std::size_t channels,
            std::byte* scratch) noexcept;

  // Returns the bytes that it needs, also of 64-byte alignment, for at most so many rows and columns.
  [[nodiscard]] static std::size_t scratch_bytes(const Axis& rows, const Axis& columns, std::int64_t most_rows,
                                                 std::int64_t most_columns, std::size_t channels) noexcept;

  // Writes output row `row` of an image whose rows lie `stride` bytes apart. Neither counts padding.
  void write(std::byte* to, const std::byte* image, std::int64_t stride, std::int64_t row) const noexcept;

 private:
  void write_nearest(std::byte* to, const std::byte* pixels) const noexcept;
  void write_bytes(std::byte* to, const std::byte* pixels, std::int64_t stride, std::size_t row) const noexcept;
  void write_floats(std::byte* to, const std::byte* pixels, std::int64_t stride, std::size_t row) const noexcept;

  Element element_;
  std::size_t channels_;
  std::size_t pixel_bytes_;
  bool nearest_;
  bool integers_ = false;  // weights of uint8 images are integers
  Taps rows_;
  Taps columns_;
  std::size_t row_stride_ = 0;  // of integer weights
  std::size_t groups_ = 0;      // of the weights of a column
  std::int16_t* row_weights_ = nullptr;
  std::int16_t* column_weights_ = nullptr;
  std::byte* sums_ = nullptr;    // of rows
  std::byte* floats_ = nullptr;  // an input row
  float* pixels_ = nullptr;      // an output row before rounding
};

}  // namespace pyecho::ops
