#include "core/ops/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>

// Of functions, because what they are inlined into must run on every processor. All with AVX2 have F16C.
#define PYECHO_TARGET __attribute__((target("avx2,f16c")))
#endif

namespace pyecho::ops {
namespace {

constexpr int kColumnShift = kWeightBits + kPixelBits;

// Returns where the weight of an input is.
constexpr std::size_t weight_at(std::size_t tap) { return tap / 2 * (kGroupWeights / 2) + tap % 2; }

// ---------------------------------------------------------------- for every processor

// Products lose half a unit on average, and the shift half a unit of its own.
constexpr std::uint16_t rounding_of_rows(std::size_t taps) { return static_cast<std::uint16_t>((taps + 1) / 2); }

void sum_rows(std::int16_t* to, const std::uint8_t* from, std::ptrdiff_t stride, const std::uint16_t* weights,
              std::size_t taps, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t sum = rounding_of_rows(taps);
    for (std::size_t tap = 0; tap < taps; ++tap) {
      sum += from[static_cast<std::ptrdiff_t>(tap) * stride + static_cast<std::ptrdiff_t>(i)] * weights[tap] >> 8;
    }
    to[i] = static_cast<std::int16_t>(sum >> 1);
  }
}

void sum_columns(std::uint8_t* to, const std::int16_t* from, const Taps& taps, std::size_t channels) noexcept {
  for (std::size_t x = 0; x < taps.outputs; ++x) {
    const std::int16_t* const pixels = from + static_cast<std::size_t>(taps.first[x]) * channels;
    const std::int16_t* const weights = taps.integers + x * taps.groups * kGroupWeights;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      std::int32_t sum = 1 << (kColumnShift - 1);
      for (std::size_t tap = 0; tap < taps.groups * kGroup; ++tap) {
        sum += weights[weight_at(tap)] * pixels[tap * channels + channel];
      }
      to[x * channels + channel] = static_cast<std::uint8_t>(sum >> kColumnShift);
    }
  }
}

void reverse(std::byte* to, const std::byte* from, std::size_t count, std::size_t bytes) noexcept {
  with_constant(bytes, [&](auto each) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to + i * each, from + (count - 1 - i) * each, each);
    }
  });
}

// The compiler makes vectors of it, for AVX2 where it is inlined into a function for that.
[[gnu::always_inline]] inline void scale_loop(float* to, const std::uint8_t* from, const float* scale,
                                              const float* offset, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]) * scale[i] + offset[i];
  }
}

void split_rgb(std::uint8_t* to, std::size_t stride, const std::uint8_t* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < 3 * count; ++i) {
    to[i % 3 * stride + i / 3] = from[i];
  }
}

void scale_bytes(float* to, const std::uint8_t* from, const float* scale, const float* offset, std::size_t count,
                 bool /*stream*/) noexcept {
  scale_loop(to, from, scale, offset, count);
}

void to_halves(Half* to, const float* from, std::size_t count) noexcept {
  std::transform(from, from + count, to, [](float value) { return to_half(value); });
}

#ifdef PYECHO_TARGET
namespace avx2 {

// ---------------------------------------------------------------- for processors with AVX2

constexpr std::size_t kVector = 32;
constexpr std::size_t kHalf = 16;
constexpr char kZero = -128;  // in a mask of _mm_shuffle_epi8

using Mask = std::array<char, kHalf>;

PYECHO_TARGET inline __m256i load(const void* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

PYECHO_TARGET inline __m128i load_half(const void* from) noexcept {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

PYECHO_TARGET inline void store(void* to, __m256i value) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}

PYECHO_TARGET inline void store_half(void* to, __m128i value) noexcept {
  _mm_storeu_si128(static_cast<__m128i*>(to), value);
}

PYECHO_TARGET void sum_rows(std::int16_t* to, const std::uint8_t* from, std::ptrdiff_t stride,
                            const std::uint16_t* weights, std::size_t taps, std::size_t count) noexcept {
  if (count < kVector) {
    return ops::sum_rows(to, from, stride, weights, taps, count);
  }
  const __m256i zero = _mm256_setzero_si256();
  const __m256i rounding = _mm256_set1_epi16(static_cast<std::int16_t>(rounding_of_rows(taps)));
  for (std::size_t done = 0; done < count; done += kVector) {
    const std::size_t x = std::min(done, count - kVector);  // the last ones overlap those before
    const std::uint8_t* row = from + x;
    __m256i low = rounding;
    __m256i high = rounding;
    for (std::size_t tap = 0; tap < taps; ++tap, row += stride) {
      const __m256i weight = _mm256_set1_epi16(static_cast<std::int16_t>(weights[tap]));
      const __m256i bytes = load(row);  // which become the upper halves of words
      low = _mm256_add_epi16(low, _mm256_mulhi_epu16(_mm256_unpacklo_epi8(zero, bytes), weight));
      high = _mm256_add_epi16(high, _mm256_mulhi_epu16(_mm256_unpackhi_epi8(zero, bytes), weight));
    }
    low = _mm256_srli_epi16(low, 1);
    high = _mm256_srli_epi16(high, 1);
    store(to + x, _mm256_permute2x128_si256(low, high, 0x20));
    store(to + x + kHalf, _mm256_permute2x128_si256(low, high, 0x31));
  }
}

// In each half: the elements of two pixels, side by side for each channel.
constexpr Mask kPairs{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, kZero, kZero, kZero, kZero};
// Four pixels of four bytes each, in the order 0 2 1 3, as pixels of three side by side.
constexpr Mask kPixels{0, 1, 2, 8, 9, 10, 4, 5, 6, 12, 13, 14, kZero, kZero, kZero, kZero};

PYECHO_TARGET inline __m256i add_halves(__m256i first, __m256i second) noexcept {
  return _mm256_add_epi32(_mm256_blend_epi32(first, second, 0xf0), _mm256_permute2x128_si256(first, second, 0x21));
}

// Four pixels of three channels at once. kGroups is the number of groups if there are few, else 0.
template <std::size_t kGroups>
PYECHO_TARGET void sum_pixels(std::uint8_t* to, const std::int16_t* from, const Taps& taps) noexcept {
  const __m256i mask = _mm256_broadcastsi128_si256(load_half(kPairs.data()));
  const __m256i rounding = _mm256_set1_epi32(1 << (kColumnShift - 1));
  // Copies, because bytes that are stored might be part of `taps`.
  const std::size_t outputs = taps.outputs;
  const std::int32_t* const first = taps.first;
  const std::int16_t* const integers = taps.integers;
  const std::size_t groups = kGroups == 0 ? taps.groups : kGroups;
  for (std::size_t done = 0; done < outputs; done += 4) {
    const std::size_t x = std::min(done, outputs - 4);  // the last ones overlap those before
    const std::int16_t* weights = integers + x * groups * kGroupWeights;
    __m256i sums[4];  // of one pixel's channels in two halves, which are to be added
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int16_t* pixels = from + static_cast<std::size_t>(first[x + i]) * 3;
      __m256i sum = _mm256_setzero_si256();
      for (std::size_t group = 0; group < groups; ++group, pixels += kGroup * 3, weights += kGroupWeights) {
        const __m256i four =
            _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(pixels)), load_half(pixels + 6), 1);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(four, mask), load(weights)));
      }
      sums[i] = sum;
    }
    const __m256i low = _mm256_add_epi32(add_halves(sums[0], sums[1]), rounding);
    const __m256i high = _mm256_add_epi32(add_halves(sums[2], sums[3]), rounding);
    const __m256i words =
        _mm256_packs_epi32(_mm256_srai_epi32(low, kColumnShift), _mm256_srai_epi32(high, kColumnShift));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x08);
    const __m128i pixels = _mm_shuffle_epi8(_mm256_castsi256_si128(bytes), load_half(kPixels.data()));
    if (x * 3 + kHalf <= outputs * 3) {
      store_half(to + x * 3, pixels);
    } else {
      std::memcpy(to + x * 3, &pixels, 12);
    }
  }
}

void sum_columns(std::uint8_t* to, const std::int16_t* from, const Taps& taps, std::size_t channels) noexcept {
  if (channels != 3 || taps.outputs < 4) {
    ops::sum_columns(to, from, taps, channels);
  } else {
    taps.groups == 1 ? sum_pixels<1>(to, from, taps) : sum_pixels<0>(to, from, taps);
  }
}

// For each size of a block: puts blocks, as many as fit, in reverse order at the end.
constexpr auto kReversing = [] {
  std::array<Mask, kHalf + 1> masks{};
  for (std::size_t bytes = 1; bytes <= kHalf; ++bytes) {
    for (std::size_t i = 0; i < kHalf / bytes * bytes; ++i) {
      masks[bytes][kHalf - (i / bytes + 1) * bytes + i % bytes] = static_cast<char>(i);
    }
  }
  return masks;
}();

// Reads forwards, as processors prefetch best.
PYECHO_TARGET void reverse(std::byte* to, const std::byte* from, std::size_t count, std::size_t bytes) noexcept {
  if (bytes <= kHalf) {
    const __m128i mask = load_half(kReversing[bytes].data());
    const std::size_t step = kHalf / bytes * bytes;
    std::size_t left = count * bytes;
    for (; left >= kHalf; left -= step, from += step) {
      store_half(to + left - kHalf, _mm_shuffle_epi8(load_half(from), mask));
    }
    count = left / bytes;
  }
  ops::reverse(to, from, count, bytes);
}

// For each channel: where it is of 16 pixels in each 16 bytes of them.
constexpr auto kChannels = [] {
  std::array<std::array<Mask, 3>, 3> masks{};
  for (std::size_t i = 0; i < 9 * kHalf; ++i) {
    const std::size_t place = 3 * (i % kHalf) + i / kHalf % 3;
    masks[i / kHalf % 3][i / kHalf / 3][i % kHalf] =
        place / kHalf == i / kHalf / 3 ? static_cast<char>(place % kHalf) : kZero;
  }
  return masks;
}();

PYECHO_TARGET void split_rgb(std::uint8_t* to, std::size_t stride, const std::uint8_t* from,
                             std::size_t count) noexcept {
  if (count < kHalf) {
    return ops::split_rgb(to, stride, from, count);
  }
  for (std::size_t done = 0; done < count; done += kHalf) {
    const std::size_t x = std::min(done, count - kHalf);  // the last ones overlap those before
    const __m128i first = load_half(from + 3 * x);
    const __m128i second = load_half(from + 3 * x + kHalf);
    const __m128i third = load_half(from + 3 * x + 2 * kHalf);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const auto& masks = kChannels[channel];
      const __m128i parts = _mm_or_si128(_mm_shuffle_epi8(first, load_half(masks[0].data())),
                                         _mm_shuffle_epi8(second, load_half(masks[1].data())));
      store_half(to + channel * stride + x, _mm_or_si128(parts, _mm_shuffle_epi8(third, load_half(masks[2].data()))));
    }
  }
}

PYECHO_TARGET void scale_bytes(float* to, const std::uint8_t* from, const float* scale, const float* offset,
                               std::size_t count, bool stream) noexcept {
  constexpr std::size_t kFloats = kVector / sizeof(float);
  std::size_t i = 0;
  if (stream && reinterpret_cast<std::uintptr_t>(to) % kVector == 0) {
    for (; i + kFloats <= count; i += kFloats) {
      const __m256 value =
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i))));
      _mm256_stream_ps(to + i,
                       _mm256_add_ps(_mm256_mul_ps(value, _mm256_loadu_ps(scale + i)), _mm256_loadu_ps(offset + i)));
    }
  }
  scale_loop(to + i, from + i, scale + i, offset + i, count - i);
}

PYECHO_TARGET void to_halves(Half* to, const float* from, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    store_half(to + i, _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  ops::to_halves(to + i, from + i, count - i);
}

constexpr Kernels kKernels{sum_rows, sum_columns, reverse, split_rgb, scale_bytes, to_halves};

}  // namespace avx2
#endif

}  // namespace

constinit const Kernels kPlainKernels{sum_rows, sum_columns, reverse, split_rgb, scale_bytes, to_halves};

const Kernels& kernels() noexcept {
#ifdef PYECHO_TARGET
  static const Kernels& best = __builtin_cpu_supports("avx2") != 0 ? avx2::kKernels : kPlainKernels;
  return best;
#else
  return kPlainKernels;
#endif
}

}  // namespace pyecho::ops
