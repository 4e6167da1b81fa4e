// The innermost loops, for this processor. All versions of a kernel write the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/ops/element.hpp"
#include "core/ops/resampler.hpp"

namespace pyecho::ops {

// Weights of uint8 images are integers. Those of an output's rows sum to kWholeRow, those of its columns to
// 1 << kWeightBits. Between the two passes, pixels have kPixelBits bits more than a byte.
inline constexpr int kWholeRow = 0xffff;
inline constexpr int kWeightBits = 14;
inline constexpr int kPixelBits = 7;
// More of them would add up to a larger error.
inline constexpr std::size_t kMostIntegerTaps = 32;
// Columns come in groups of so many, of which the last have the weight 0. Weights of a group: four times the first two,
// then four times the last two, as AVX2 multiplies them.
inline constexpr std::size_t kGroup = 4;
inline constexpr std::size_t kGroupWeights = 16;
// Bytes that kernels may read past the last input of a row.
inline constexpr std::size_t kSlackBytes = 64;

struct Kernels {
  // Sums `taps` rows that lie `stride` bytes apart, and `count` elements of each.
  void (*sum_rows)(std::int16_t* to, const std::uint8_t* from, std::ptrdiff_t stride, const std::uint16_t* weights,
                   std::size_t taps, std::size_t count) noexcept;
  // Sums columns of one row of pixels with `channels` elements.
  void (*sum_columns)(std::uint8_t* to, const std::int16_t* from, const Taps& columns, std::size_t channels) noexcept;
  // Copies `count` blocks of `bytes` in reverse order.
  void (*reverse)(std::byte* to, const std::byte* from, std::size_t count, std::size_t bytes) noexcept;
  // Writes the three channels of `count` pixels to three rows that lie `stride` bytes apart.
  void (*split_rgb)(std::uint8_t* to, std::size_t stride, const std::uint8_t* from, std::size_t count) noexcept;
  // to[i] = from[i] * scale[i] + offset[i]; `stream`: past the caches, and the caller fences
  void (*scale_bytes)(float* to, const std::uint8_t* from, const float* scale, const float* offset, std::size_t count,
                      bool stream) noexcept;
  void (*to_halves)(Half* to, const float* from, std::size_t count) noexcept;
};

extern const Kernels kPlainKernels;

// Returns the best version for this processor.
[[nodiscard]] const Kernels& kernels() noexcept;

// Fetches a line of an item into the caches. Processors themselves begin anew with each line. GCC drops calls of
// functions that do nothing else, so this one is always inlined.
[[gnu::always_inline]] inline void prefetch_line(const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kCacheLineBytes = 64;
  for (std::size_t done = 0; done < bytes; done += kCacheLineBytes) {
    __builtin_prefetch(from + done);
  }
}

// Calls `f` with a size, as a constant if it is a usual one: compilers make much better loops of constants.
template <class F>
void with_constant(std::size_t size, const F& f) {
  const auto usual = [&]<std::size_t... kSizes>(std::index_sequence<kSizes...>) {
    return ((size == kSizes && (f(std::integral_constant<std::size_t, kSizes>()), true)) || ...);
  };
  if (!usual(std::index_sequence<1, 2, 3, 4, 8>())) {
    f(size);
  }
}

}  // namespace pyecho::ops
