#include "core/ops/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pyecho::ops {
namespace {

void sum_rows(std::int16_t* to, const std::uint8_t* from, std::ptrdiff_t stride, const std::int16_t* weights,
              std::size_t taps, std::size_t count) noexcept {
  constexpr std::size_t kBlock = 64;
  for (std::size_t done = 0; done < count; done += kBlock) {
    std::array<std::int32_t, kBlock> sums{};
    sums.fill(1 << (kRowShift - 1));
    const std::size_t block = std::min(kBlock, count - done);
    for (std::size_t tap = 0; tap < taps; ++tap) {
      const std::uint8_t* const row = from + static_cast<std::ptrdiff_t>(tap) * stride + done;
      for (std::size_t i = 0; i < block; ++i) {
        sums[i] += weights[tap] * row[i];
      }
    }
    for (std::size_t i = 0; i < block; ++i) {
      to[done + i] = static_cast<std::int16_t>(sums[i] >> kRowShift);
    }
  }
}

void sum_columns(std::uint8_t* to, const std::int16_t* from, const Columns& columns, std::size_t channels) noexcept {
  const std::size_t taps = columns.groups * kGroup;
  for (std::size_t x = 0; x < columns.outputs; ++x) {
    const std::int16_t* const pixels = from + static_cast<std::size_t>(columns.first[x]) * channels;
    const std::int16_t* const weights = columns.weights + x * columns.groups * kGroupWeights;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      std::int32_t sum = 1 << (kColumnShift - 1);
      for (std::size_t tap = 0; tap < taps; ++tap) {
        const std::size_t place = tap / kGroup * kGroupWeights + tap % kGroup / 2 * (kGroupWeights / 2) + tap % 2;
        sum += weights[place] * pixels[tap * channels + channel];
      }
      to[x * channels + channel] = static_cast<std::uint8_t>(sum >> kColumnShift);
    }
  }
}

template <std::size_t kBytes>
void reverse_blocks(std::byte* to, const std::byte* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(to + i * kBytes, from + (count - 1 - i) * kBytes, kBytes);
  }
}

void reverse(std::byte* to, const std::byte* from, std::size_t count, std::size_t bytes) noexcept {
  switch (bytes) {
    case 1:
      return reverse_blocks<1>(to, from, count);
    case 2:
      return reverse_blocks<2>(to, from, count);
    case 3:
      return reverse_blocks<3>(to, from, count);
    case 4:
      return reverse_blocks<4>(to, from, count);
    case 8:
      return reverse_blocks<8>(to, from, count);
    case 12:
      return reverse_blocks<12>(to, from, count);
    default:
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(to + i * bytes, from + (count - 1 - i) * bytes, bytes);
      }
  }
}

void split_rgb(std::uint8_t* to, std::ptrdiff_t stride, const std::uint8_t* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = from[3 * i];
    (to + stride)[i] = from[3 * i + 1];
    (to + 2 * stride)[i] = from[3 * i + 2];
  }
}

void scale_bytes(float* to, const std::uint8_t* from, const float* scale, const float* offset,
                 std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]) * scale[i] + offset[i];
  }
}

void to_halves(Half* to, const float* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = to_half(from[i]);
  }
}

void from_halves(float* to, const Half* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = to_float(from[i]);
  }
}

}  // namespace

constinit const Kernels kPlainKernels{sum_rows, sum_columns, reverse, split_rgb, scale_bytes, to_halves, from_halves};

const Kernels& kernels() noexcept {
#ifdef PYECHO_AVX2
  static const Kernels& best = __builtin_cpu_supports("avx2") != 0 ? kAvx2Kernels : kPlainKernels;
  return best;
#else
  return kPlainKernels;
#endif
}

}  // namespace pyecho::ops
