// Makes the row of one use of an item: draws the place of its part once, then writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/ops/geometry.hpp"
#include "core/ops/program.hpp"
#include "core/ops/resampler.hpp"

namespace pyecho::ops {

// A line of the output is what one index of the axes before line_axis_ selects: as long as possible if elements are only
// moved, and short enough for the caches if their values are computed.
class Transform {
 public:
  // The use `key` of an item of this shape, which Program::refusal() has passed. Both outlive this.
  Transform(const Program& program, const UseKey& key, std::span<const std::uint64_t> shape) noexcept;

  // Returns the bytes of the row.
  [[nodiscard]] std::size_t row_bytes() const noexcept { return elements_ * program_.output().element_bytes; }
  // Writes the row's extents, one of 64 bits for each axis, of any alignment.
  void write_shape(std::byte* to) const noexcept;
  // Returns the bytes of scratch memory that write() needs: some rows of the item in float32, and the weights, so at
  // most a small multiple of the longest row.
  [[nodiscard]] std::size_t scratch_bytes() const noexcept;
  // Writes the row, once. `item`, `row`: any alignment of an element; they do not overlap. `scratch`: aligned to 64
  // bytes; each thread has its own. `stream`: long lines that are only copied, and normalised bytes, bypass the caches
  // (stream_copy.hpp); the caller fences.
  void write(const std::byte* item, std::byte* row, std::byte* scratch, bool stream) noexcept;

 private:
  [[nodiscard]] const Axis& axis(std::size_t i) const noexcept { return geometry_.axes[i]; }
  [[nodiscard]] const Window& line() const noexcept { return axis(line_axis_).window; }
  [[nodiscard]] std::int64_t block_stride() const noexcept { return static_cast<std::int64_t>(block_bytes_); }

  void visit(std::size_t i, const std::byte* from, std::size_t resampled, bool padding, bool cut) noexcept;
  void move_lines(const std::byte* from, std::int64_t stride, std::int64_t count) noexcept;
  void write_line(const std::byte* from, std::size_t resampled, bool padding, bool cut) noexcept;
  void make_line(std::byte* to, const std::byte* from, std::size_t resampled, bool padding, bool cut) noexcept;
  void move_line(std::byte* to, const std::byte* from, std::int64_t begin, std::int64_t end) const noexcept;
  void fill(std::byte* to, std::int64_t begin, std::int64_t end, const Filling& value) const noexcept;

  const Program& program_;
  const std::span<const std::uint64_t> shape_;
  const Geometry geometry_;
  std::size_t line_axis_;
  std::array<std::int64_t, kMaxAxes + 1> strides_;  // of the item, in bytes
  std::size_t elements_ = 1;                        // of the output
  std::size_t block_ = 1;                           // elements of one index of the line
  std::size_t block_bytes_ = 0;
  std::size_t line_elements_ = 0;
  std::size_t channels_ = 1;      // if they matter
  std::size_t values_at_ = 0;     // in the scratch memory, after the line
  std::size_t resampler_at_ = 0;  // likewise
  std::optional<Resampler> resampler_{};
  std::byte* row_ = nullptr;
  std::byte* scratch_ = nullptr;
  bool stream_ = false;
  bool moves_ = false;       // lines are copied from the item as they are, or reversed
  std::size_t written_ = 0;  // elements
};

}  // namespace pyecho::ops
