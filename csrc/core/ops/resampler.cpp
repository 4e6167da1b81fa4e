#include "core/ops/resampler.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/ops/element.hpp"
#include "core/ops/kernels.hpp"
#include "core/ops/values.hpp"

namespace pyecho::ops {
namespace {

constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

constexpr std::size_t groups_of(std::int64_t taps) noexcept {
  return (static_cast<std::size_t>(taps) + kGroup - 1) / kGroup;
}

std::size_t weight_bytes(std::int64_t outputs, std::size_t each) noexcept {
  return aligned(static_cast<std::size_t>(outputs) * each * sizeof(std::int16_t));
}

// Rows of pixels, with what kernels read past the end.
std::size_t sum_bytes(std::int64_t inputs, std::size_t taps, std::size_t channels) noexcept {
  return aligned((static_cast<std::size_t>(inputs) + taps) * channels * sizeof(float) + kSlackBytes);
}

// to[i] += from[i] * weight
void add(float* to, const float* from, float weight, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] += from[i] * weight;
  }
}

using Four = float __attribute__((vector_size(16)));

// Sums weighted pixels of kChannels elements, at most four; what lies after a pixel is ignored.
template <std::size_t kChannels>
void sum_pixels(float* to, const float* sums, const Taps& columns, std::size_t /*channels*/) noexcept {
  for (std::int64_t x = 0; x < columns.outputs; ++x, to += kChannels) {
    const float* from = sums + static_cast<std::size_t>(columns.first[x]) * kChannels;
    const float* const weights = columns.weights + x * columns.stride;
    Four sum{};
    for (std::int32_t tap = 0; tap < columns.count[x]; ++tap, from += kChannels) {
      Four pixel;
      std::memcpy(&pixel, from, sizeof(pixel));
      sum += pixel * weights[tap];
    }
    std::memcpy(to, &sum, sizeof(sum));
  }
}

// The same for any number of channels.
void sum_blocks(float* to, const float* sums, const Taps& columns, std::size_t channels) noexcept {
  for (std::int64_t x = 0; x < columns.outputs; ++x, to += channels) {
    const float* from = sums + static_cast<std::size_t>(columns.first[x]) * channels;
    std::fill_n(to, channels, 0.0F);
    for (std::int32_t tap = 0; tap < columns.count[x]; ++tap, from += channels) {
      add(to, from, columns.weights[x * columns.stride + tap], channels);
    }
  }
}

}  // namespace

std::size_t Resampler::scratch_bytes(const Axis& rows, const Axis& columns, std::int64_t most_rows,
                                     std::int64_t most_columns, std::size_t channels) noexcept {
  std::size_t bytes = 0;
  for (const auto& [axis, extent] : {std::pair{rows, most_rows}, {columns, most_columns}}) {
    const std::int64_t most = Taps::most_of(extent, axis.resampled);
    bytes += aligned(Taps::bytes(axis.window.extent, most));
    bytes += weight_bytes(axis.window.extent, std::min(groups_of(most), kMostIntegerTaps / kGroup) * kGroupWeights);
  }
  bytes += 2 * sum_bytes(most_columns, kMostIntegerTaps, channels);
  return bytes + aligned(static_cast<std::size_t>(columns.window.extent) * channels * sizeof(float) + kSlackBytes);
}

Resampler::Resampler(const Axis& rows, const Axis& columns, bool nearest, const ArrayType& item, std::size_t channels,
                     std::byte* scratch) noexcept
    : element_(item.element), channels_(channels), pixel_bytes_(channels * item.element_bytes), nearest_(nearest) {
  const auto take = [&](std::size_t bytes) {
    scratch += aligned(bytes);
    return scratch - aligned(bytes);
  };
  rows_ = taps_of(rows, nearest, scratch);
  take(Taps::bytes(rows_.outputs, rows_.stride));
  columns_ = taps_of(columns, nearest, scratch);
  take(Taps::bytes(columns_.outputs, columns_.stride));
  integers_ = element_ == Element::kUint8 && !nearest &&
              std::cmp_less_equal(std::max(rows_.most, columns_.most), kMostIntegerTaps);
  if (integers_) {
    row_stride_ = groups_of(rows_.most) * kGroup;
    groups_ = groups_of(columns_.most);
    row_weights_ = reinterpret_cast<std::int16_t*>(take(weight_bytes(rows_.outputs, row_stride_)));
    column_weights_ = reinterpret_cast<std::int16_t*>(take(weight_bytes(columns_.outputs, groups_ * kGroupWeights)));
    write_row_weights(rows_, row_weights_, row_stride_);
    write_column_weights(columns_, column_weights_, groups_);
  }
  const std::size_t row_bytes = sum_bytes(columns_.high - columns_.low, groups_ * kGroup, channels);
  sums_ = take(row_bytes);
  floats_ = take(row_bytes);
  pixels_ = reinterpret_cast<float*>(scratch);
}

void Resampler::write(std::byte* to, const std::byte* image, std::int64_t stride, std::int64_t row) const noexcept {
  const auto i = static_cast<std::size_t>(row);
  const std::byte* const pixels =
      image + (rows_.low + rows_.first[i]) * stride + columns_.low * static_cast<std::int64_t>(pixel_bytes_);
  if (nearest_) {
    write_nearest(to, pixels);
  } else if (integers_) {
    write_bytes(to, pixels, stride, i);
  } else {
    write_floats(to, pixels, stride, i);
  }
}

void Resampler::write_nearest(std::byte* to, const std::byte* pixels) const noexcept {
  for (std::int64_t x = 0; x < columns_.outputs; ++x, to += pixel_bytes_) {
    std::memcpy(to, pixels + static_cast<std::size_t>(columns_.first[x]) * pixel_bytes_, pixel_bytes_);
  }
}

void Resampler::write_bytes(std::byte* to, const std::byte* pixels, std::int64_t stride,
                            std::size_t row) const noexcept {
  auto* const sums = reinterpret_cast<std::int16_t*>(sums_);
  kernels().sum_rows(sums, reinterpret_cast<const std::uint8_t*>(pixels), stride, row_weights_ + row * row_stride_,
                     static_cast<std::size_t>(rows_.count[row]),
                     static_cast<std::size_t>(columns_.high - columns_.low) * channels_);
  kernels().sum_columns(reinterpret_cast<std::uint8_t*>(to), sums,
                        {columns_.first, column_weights_, groups_, static_cast<std::size_t>(columns_.outputs)},
                        channels_);
}

void Resampler::write_floats(std::byte* to, const std::byte* pixels, std::int64_t stride,
                             std::size_t row) const noexcept {
  auto* const sums = reinterpret_cast<float*>(sums_);
  const auto count = static_cast<std::size_t>(columns_.high - columns_.low) * channels_;
  const float* const weights = rows_.weights + static_cast<std::int64_t>(row) * rows_.stride;
  std::fill_n(sums, count, 0.0F);
  for (std::int32_t tap = 0; tap < rows_.count[row]; ++tap) {
    const std::byte* input = pixels + tap * stride;
    if (element_ != Element::kFloat32) {
      convert_elements(Element::kFloat32, floats_, element_, input, count);
      input = floats_;
    }
    add(sums, reinterpret_cast<const float*>(input), weights[tap], count);
  }
  const auto sum = channels_ == 1   ? sum_pixels<1>
                   : channels_ == 2 ? sum_pixels<2>
                   : channels_ == 3 ? sum_pixels<3>
                   : channels_ == 4 ? sum_pixels<4>
                                    : sum_blocks;
  sum(pixels_, sums, columns_, channels_);
  convert_elements(element_, to, Element::kFloat32, reinterpret_cast<const std::byte*>(pixels_),
                   static_cast<std::size_t>(columns_.outputs) * channels_);
}

}  // namespace pyecho::ops
