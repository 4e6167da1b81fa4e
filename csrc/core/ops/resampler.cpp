#include "core/ops/resampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/ops/element.hpp"
#include "core/ops/kernels.hpp"
#include "core/ops/values.hpp"

namespace pyecho::ops {
namespace {

constexpr std::size_t groups_of(std::size_t taps) noexcept { return (taps + kGroup - 1) / kGroup; }

// A row of pixels, with what kernels read past the end.
std::size_t row_bytes(std::size_t elements, std::size_t channels) noexcept {
  return aligned((elements + kMostIntegerTaps * channels) * sizeof(float) + kSlackBytes);
}

// Writes integers in proportion to `weights`. They sum to `whole`: the largest takes what rounding leaves.
template <class Integer>
void write_whole(Integer* to, const float* weights, std::size_t taps, int whole) noexcept {
  int left = whole;
  for (std::size_t tap = 0; tap < taps; ++tap) {
    to[tap] = static_cast<Integer>(std::lround(weights[tap] * static_cast<float>(whole)));
    left -= to[tap];
  }
  Integer& largest = *std::max_element(to, to + taps);
  largest = static_cast<Integer>(largest + left);
}

}  // namespace

// So many integers lie within the support of a triangle, and one more for rounding.
std::size_t Taps::most_of(std::int64_t extent, std::int64_t size) noexcept {
  const double scale = static_cast<double>(extent) / static_cast<double>(size);
  return static_cast<std::size_t>(std::ceil(2 * std::max(1.0, scale))) + 1;
}

std::size_t Taps::bytes(std::size_t outputs, std::size_t most) noexcept {
  const std::size_t integers = groups_of(std::min(most, kMostIntegerTaps)) * kGroupWeights;
  return aligned(outputs * (2 * sizeof(std::int32_t) + most * sizeof(float) + integers * sizeof(std::int16_t)));
}

Taps::Taps(const Axis& axis, bool nearest, std::byte* memory) noexcept
    : outputs(static_cast<std::size_t>(axis.window.end - axis.window.begin)),
      low(outputs == 0 ? 0 : std::max(axis.source.at(0), axis.source.at(axis.source.extent - 1))),
      stride(most_of(axis.source.extent, axis.resampled)),
      first(reinterpret_cast<std::int32_t*>(memory)),
      count(first + outputs),
      weights(reinterpret_cast<float*>(count + outputs)),
      integers(reinterpret_cast<std::int16_t*>(weights + outputs * stride)) {
  const Window& window = axis.window;
  const std::int64_t inputs = axis.source.extent;
  const double scale = static_cast<double>(inputs) / static_cast<double>(axis.resampled);
  const double support = std::max(1.0, scale);
  for (std::size_t i = 0; i < outputs; ++i) {
    const double middle = (static_cast<double>(window.at(window.begin + static_cast<std::int64_t>(i))) + 0.5) * scale;
    std::int64_t begin = std::min(static_cast<std::int64_t>(middle), inputs - 1);
    std::int64_t end = begin + 1;
    if (!nearest) {
      begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(middle - 0.5 - support)) + 1);
      end = std::min(inputs, static_cast<std::int64_t>(std::ceil(middle - 0.5 + support)));
    }
    const std::int64_t taps = end - begin;
    float* const own = weights + i * stride;
    double sum = 0;
    for (std::int64_t j = 0; j < taps; ++j) {
      const double weight = support - std::fabs(static_cast<double>(begin + j) + 0.5 - middle);
      own[axis.source.step > 0 ? j : taps - 1 - j] = static_cast<float>(weight);
      sum += weight;
    }
    std::for_each_n(own, taps, [whole = static_cast<float>(1 / sum)](float& weight) { weight *= whole; });
    const std::int64_t from = axis.source.at(axis.source.step > 0 ? begin : end - 1);
    first[i] = static_cast<std::int32_t>(from);
    count[i] = static_cast<std::int32_t>(taps);
    low = std::min(low, from);
    high = std::max(high, from + taps);
    most = std::max(most, taps);
  }
  std::for_each_n(first, outputs, [this](std::int32_t& input) { input -= static_cast<std::int32_t>(low); });
}

void Taps::write_integers() noexcept {
  groups = groups_of(static_cast<std::size_t>(most));
  std::int16_t* to = integers;
  for (std::size_t i = 0; i < outputs; ++i) {
    std::array<std::int16_t, kMostIntegerTaps> own{};
    write_whole(own.data(), weights + i * stride, static_cast<std::size_t>(count[i]), 1 << kWeightBits);
    for (std::size_t pair = 0; pair < groups * kGroup; pair += 2) {
      for (std::size_t copy = 0; copy < kGroup; ++copy, to += 2) {
        std::copy_n(own.begin() + pair, 2, to);
      }
    }
  }
}

std::size_t Resampler::scratch_bytes(const Axis& rows, const Axis& columns, std::uint64_t most_rows,
                                     std::uint64_t most_columns, std::size_t channels) noexcept {
  std::size_t bytes = 2 * row_bytes(most_columns * channels, channels);
  for (const auto& [axis, extent] : {std::pair{rows, most_rows}, {columns, most_columns}}) {
    bytes += Taps::bytes(static_cast<std::size_t>(axis.window.extent),
                         Taps::most_of(static_cast<std::int64_t>(extent), axis.resampled));
  }
  return bytes + aligned(static_cast<std::size_t>(columns.window.extent) * channels * sizeof(float));
}

Resampler::Resampler(const Axis& rows, const Axis& columns, bool nearest, const ArrayType& item, std::size_t channels,
                     std::byte* scratch) noexcept
    : element_(item.element),
      channels_(channels),
      pixel_bytes_(channels * item.element_bytes),
      nearest_(nearest),
      rows_(rows, nearest, scratch),
      columns_(columns, nearest, scratch + Taps::bytes(rows_.outputs, rows_.stride)),
      integers_(element_ == Element::kUint8 && !nearest &&
                std::cmp_less_equal(std::max(rows_.most, columns_.most), kMostIntegerTaps)),
      inputs_(static_cast<std::size_t>(columns_.high - columns_.low) * channels),
      sums_(scratch + Taps::bytes(rows_.outputs, rows_.stride) + Taps::bytes(columns_.outputs, columns_.stride)),
      floats_(sums_ + row_bytes(inputs_, channels)),
      pixels_(reinterpret_cast<float*>(floats_ + row_bytes(inputs_, channels))) {
  if (integers_) {
    columns_.write_integers();
  }
}

void Resampler::write(std::byte* to, const std::byte* image, std::int64_t stride, std::size_t row) const noexcept {
  image += rows_.low * stride + columns_.low * static_cast<std::int64_t>(pixel_bytes_);
  if (row + 1 < rows_.outputs) {  // what only the next output needs
    const std::int32_t end = rows_.first[row + 1] + rows_.count[row + 1];
    for (std::int32_t input = rows_.first[row] + rows_.count[row]; input < end; ++input) {
      prefetch_line(image + input * stride, inputs_ / channels_ * pixel_bytes_);
    }
  }
  const std::byte* const pixels = image + rows_.first[row] * stride;
  if (nearest_) {
    with_constant(pixel_bytes_, [&](auto bytes) {
      for (std::size_t x = 0; x < columns_.outputs; ++x) {
        std::memcpy(to + x * bytes, pixels + static_cast<std::size_t>(columns_.first[x]) * bytes, bytes);
      }
    });
  } else if (integers_) {
    auto* const sums = reinterpret_cast<std::int16_t*>(sums_);
    const auto taps = static_cast<std::size_t>(rows_.count[row]);
    std::array<std::uint16_t, kMostIntegerTaps> weights{};
    write_whole(weights.data(), rows_.weights + row * rows_.stride, taps, kWholeRow);
    kernels().sum_rows(sums, reinterpret_cast<const std::uint8_t*>(pixels), stride, weights.data(), taps, inputs_);
    kernels().sum_columns(reinterpret_cast<std::uint8_t*>(to), sums, columns_, channels_);
  } else {
    write_floats(to, pixels, stride, row);
  }
}

void Resampler::write_floats(std::byte* to, const std::byte* pixels, std::int64_t stride,
                             std::size_t row) const noexcept {
  auto* const sums = reinterpret_cast<float*>(sums_);
  auto* const floats = reinterpret_cast<float*>(floats_);
  std::fill_n(sums, inputs_, 0.0F);
  for (std::int32_t tap = 0; tap < rows_.count[row]; ++tap) {
    convert_elements(Element::kFloat32, floats_, element_, pixels + tap * stride, inputs_);
    const float weight = rows_.weights[row * rows_.stride + static_cast<std::size_t>(tap)];
    std::transform(sums, sums + inputs_, floats, sums, [weight](float sum, float in) { return sum + in * weight; });
  }
  with_constant(channels_, [&](auto channels) {
    for (std::size_t x = 0; x < columns_.outputs; ++x) {
      const float* const from = sums + static_cast<std::size_t>(columns_.first[x]) * channels;
      const float* const weights = columns_.weights + x * columns_.stride;
      for (std::size_t channel = 0; channel < channels; ++channel) {
        float sum = 0;
        for (std::size_t tap = 0; std::cmp_less(tap, columns_.count[x]); ++tap) {
          sum += from[tap * channels + channel] * weights[tap];
        }
        pixels_[x * channels + channel] = sum;
      }
    }
  });
  convert_elements(element_, to, Element::kFloat32, reinterpret_cast<const std::byte*>(pixels_),
                   columns_.outputs * channels_);
}

}  // namespace pyecho::ops
