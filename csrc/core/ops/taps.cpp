#include "core/ops/taps.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/ops/element.hpp"
#include "core/ops/kernels.hpp"

namespace pyecho::ops {
namespace {

using IntegerWeights = std::array<std::int16_t, kMostIntegerTaps>;

// The largest one takes what rounding leaves to a sum of 1.
IntegerWeights integer_weights(const Taps& taps, std::int64_t i) noexcept {
  constexpr int kOne = 1 << kWeightBits;
  const float* const exact = taps.weights + i * taps.stride;
  IntegerWeights weights{};
  int left = kOne;
  std::size_t largest = 0;
  const auto count = static_cast<std::size_t>(taps.count[i]);
  for (std::size_t j = 0; j < count; ++j) {
    weights[j] = converted<std::int16_t>(exact[j] * kOne);
    left -= weights[j];
    largest = weights[j] > weights[largest] ? j : largest;
  }
  weights[largest] = static_cast<std::int16_t>(weights[largest] + left);
  return weights;
}

}  // namespace

// So many integers lie within the support of a triangle, and one more for rounding.
std::int64_t Taps::most_of(std::int64_t extent, std::int64_t size) noexcept {
  const double scale = static_cast<double>(extent) / static_cast<double>(size);
  return static_cast<std::int64_t>(std::ceil(2 * std::max(1.0, scale))) + 1;
}

std::size_t Taps::bytes(std::int64_t outputs, std::int64_t most) noexcept {
  const std::size_t each = 2 * sizeof(std::int32_t) + static_cast<std::size_t>(most) * sizeof(float);
  return static_cast<std::size_t>(outputs) * each;
}

Taps taps_of(const Axis& axis, bool nearest, std::byte* memory) noexcept {
  const Window& window = axis.window;
  const std::int64_t inputs = axis.source.extent;
  Taps taps;
  taps.outputs = window.end - window.begin;
  taps.stride = Taps::most_of(inputs, axis.resampled);
  taps.first = reinterpret_cast<std::int32_t*>(memory);
  taps.count = taps.first + taps.outputs;
  taps.weights = reinterpret_cast<float*>(taps.count + taps.outputs);
  const double scale = static_cast<double>(inputs) / static_cast<double>(axis.resampled);
  const double support = std::max(1.0, scale);
  taps.low = taps.outputs == 0 ? 0 : std::max(axis.source.at(0), axis.source.at(inputs - 1));
  for (std::int64_t i = 0; i < taps.outputs; ++i) {
    const double middle = (static_cast<double>(window.at(window.begin + i)) + 0.5) * scale;
    std::int64_t begin = std::min(static_cast<std::int64_t>(middle), inputs - 1);
    std::int64_t end = begin + 1;
    if (!nearest) {
      begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(middle - 0.5 - support)) + 1);
      end = std::min(inputs, static_cast<std::int64_t>(std::ceil(middle - 0.5 + support)));
    }
    const std::int64_t count = end - begin;
    float* const weights = taps.weights + i * taps.stride;
    double sum = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const double weight = support - std::fabs(static_cast<double>(begin + j) + 0.5 - middle);
      weights[axis.source.step > 0 ? j : count - 1 - j] = static_cast<float>(weight);
      sum += weight;
    }
    std::for_each_n(weights, count, [whole = static_cast<float>(1 / sum)](float& weight) { weight *= whole; });
    const std::int64_t first = axis.source.at(axis.source.step > 0 ? begin : end - 1);
    taps.first[i] = static_cast<std::int32_t>(first);
    taps.count[i] = static_cast<std::int32_t>(count);
    taps.low = std::min(taps.low, first);
    taps.high = std::max(taps.high, first + count);
    taps.most = std::max(taps.most, count);
  }
  for (std::int64_t i = 0; i < taps.outputs; ++i) {
    taps.first[i] -= static_cast<std::int32_t>(taps.low);
  }
  return taps;
}

void write_row_weights(const Taps& taps, std::int16_t* to, std::size_t stride) noexcept {
  for (std::int64_t i = 0; i < taps.outputs; ++i, to += stride) {
    std::copy_n(integer_weights(taps, i).begin(), stride, to);
  }
}

void write_column_weights(const Taps& taps, std::int16_t* to, std::size_t groups) noexcept {
  for (std::int64_t i = 0; i < taps.outputs; ++i) {
    const IntegerWeights weights = integer_weights(taps, i);
    for (std::size_t pair = 0; pair < groups * kGroup; pair += 2) {
      for (std::size_t copy = 0; copy < kGroup; ++copy, to += 2) {
        std::copy_n(weights.begin() + pair, 2, to);
      }
    }
  }
}

}  // namespace pyecho::ops
