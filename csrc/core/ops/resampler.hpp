// Rows of a resampled image. Rows are summed first, then columns, so that rows which no output needs are never read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ops/geometry.hpp"
#include "core/ops/operation.hpp"

namespace pyecho::ops {

[[nodiscard]] constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

// The inputs of each output of a resampled axis, with their weights, for the outputs that are no padding, in order. The
// caller owns the memory.
struct Taps {
  std::size_t outputs = 0;
  std::int64_t low = 0;   // the first input that any of them needs
  std::int64_t high = 0;  // one past the last
  std::int64_t most = 1;  // the most inputs of an output
  std::size_t stride = 0;
  std::int32_t* first = nullptr;     // of each output: its first input, counted from `low`
  std::int32_t* count = nullptr;     // how many inputs it has
  float* weights = nullptr;          // `stride` for each output
  std::int16_t* integers = nullptr;  // weights for kernels.hpp's sum_columns, `groups` times kGroupWeights each
  std::size_t groups = 0;

  // Returns the most inputs that an output may have, and the bytes of the tables for them.
  [[nodiscard]] static std::size_t most_of(std::int64_t extent, std::int64_t size) noexcept;
  [[nodiscard]] static std::size_t bytes(std::size_t outputs, std::size_t most) noexcept;

  // `nearest`: one input for each output.
  Taps(const Axis& axis, bool nearest, std::byte* memory) noexcept;
  // Writes `integers`. Needs `most` up to kMostIntegerTaps.
  void write_integers() noexcept;
};

class Resampler {
 public:
  // Pixels consist of `channels` elements.
  Resampler(const Axis& rows, const Axis& columns, bool nearest, const ArrayType& item, std::size_t channels,
            std::byte* scratch) noexcept;

  // Returns the bytes that it needs, also of 64-byte alignment, for at most so many rows and columns.
  [[nodiscard]] static std::size_t scratch_bytes(const Axis& rows, const Axis& columns, std::uint64_t most_rows,
                                                 std::uint64_t most_columns, std::size_t channels) noexcept;

  // Writes output row `row` of an image whose rows lie `stride` bytes apart. Neither counts padding.
  void write(std::byte* to, const std::byte* image, std::int64_t stride, std::size_t row) const noexcept;

 private:
  void write_floats(std::byte* to, const std::byte* pixels, std::int64_t stride, std::size_t row) const noexcept;

  Element element_;
  std::size_t channels_;
  std::size_t pixel_bytes_;
  bool nearest_;
  Taps rows_;
  Taps columns_;
  bool integers_;            // weights of uint8 images
  std::size_t inputs_;       // elements of a row that are needed
  std::byte* sums_;          // of rows
  std::byte* floats_;        // an input row
  float* pixels_ = nullptr;  // an output row before rounding
};

}  // namespace pyecho::ops
