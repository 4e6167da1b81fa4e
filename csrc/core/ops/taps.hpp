// Which inputs make an output of a resampled axis, and how much each of them counts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ops/geometry.hpp"

namespace pyecho::ops {

// For the outputs of an axis that are no padding, in order. Memory is that of the caller.
struct Taps {
  std::int64_t outputs = 0;
  std::int64_t low = 0;   // the first input that any of them needs
  std::int64_t high = 0;  // one past the last
  std::int64_t most = 1;  // the most inputs of an output
  std::int64_t stride = 0;
  std::int32_t* first = nullptr;  // of each output: its first input, counted from `low`
  std::int32_t* count = nullptr;  // how many inputs it has
  float* weights = nullptr;       // `stride` for each output

  // Returns the most inputs that an output may have.
  [[nodiscard]] static std::int64_t most_of(std::int64_t extent, std::int64_t size) noexcept;
  // Returns the bytes of the tables for `outputs` of at most `most` inputs.
  [[nodiscard]] static std::size_t bytes(std::int64_t outputs, std::int64_t most) noexcept;
};

// Fills tables at `memory`. `nearest`: one input for each output.
[[nodiscard]] Taps taps_of(const Axis& axis, bool nearest, std::byte* memory) noexcept;

// Integer weights (kernels.hpp) of at most kMostIntegerTaps inputs. Of rows: `stride` for each output, with zeros after
// the last; of columns: in groups.
void write_row_weights(const Taps& taps, std::int16_t* to, std::size_t stride) noexcept;
void write_column_weights(const Taps& taps, std::int16_t* to, std::size_t groups) noexcept;

}  // namespace pyecho::ops
