#include "core/ops/kernels.hpp"

#ifdef PYECHO_AVX2

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

// Of functions, because what they are inlined into must run on every processor. All with AVX2 have F16C.
#define PYECHO_TARGET __attribute__((target("avx2,f16c")))

namespace pyecho::ops {
namespace {

constexpr std::size_t kVector = 32;
constexpr std::size_t kHalf = 16;
constexpr std::size_t kPixelsAtOnce = 4;
constexpr char kZero = -128;  // in a mask of _mm_shuffle_epi8

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

template <class T>
T read(const void* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// ---------------------------------------------------------------- rows

// Sums of 32 elements of kPairs pairs of rows; 0: of as many as `taps` says.
template <std::size_t kPairs>
PYECHO_TARGET void sum_pairs(std::int16_t* to, const std::uint8_t* from, std::ptrdiff_t stride,
                             const std::int16_t* weights, std::size_t taps, std::size_t count) noexcept {
  const std::size_t pairs = kPairs == 0 ? (taps + 1) / 2 : kPairs;
  const __m256i zero = _mm256_setzero_si256();
  for (std::size_t done = 0; done < count; done += kVector) {
    const std::size_t x = std::min(done, count - kVector);  // the last ones overlap those before
    const std::uint8_t* row = from + x;
    __m256i sums[4];
    for (__m256i& sum : sums) {
      sum = _mm256_set1_epi32(1 << (kRowShift - 1));
    }
    for (std::size_t pair = 0; pair < pairs; ++pair, row += 2 * stride) {
      const __m256i weight = _mm256_set1_epi32(read<std::int32_t>(weights + 2 * pair));
      const __m256i first = load(row);
      // The weight after the last one is 0.
      const __m256i second = load(2 * pair + 1 < taps ? row + stride : row);
      const __m256i low = _mm256_unpacklo_epi8(first, second);
      const __m256i high = _mm256_unpackhi_epi8(first, second);
      sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weight));
      sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weight));
      sums[2] = _mm256_add_epi32(sums[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weight));
      sums[3] = _mm256_add_epi32(sums[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weight));
    }
    const __m256i low =
        _mm256_packs_epi32(_mm256_srai_epi32(sums[0], kRowShift), _mm256_srai_epi32(sums[1], kRowShift));
    const __m256i high =
        _mm256_packs_epi32(_mm256_srai_epi32(sums[2], kRowShift), _mm256_srai_epi32(sums[3], kRowShift));
    store(to + x, _mm256_permute2x128_si256(low, high, 0x20));
    store(to + x + kHalf, _mm256_permute2x128_si256(low, high, 0x31));
  }
}

void sum_rows(std::int16_t* to, const std::uint8_t* from, std::ptrdiff_t stride, const std::int16_t* weights,
              std::size_t taps, std::size_t count) noexcept {
  if (count < kVector) {
    return kPlainKernels.sum_rows(to, from, stride, weights, taps, count);
  }
  const auto sum = taps <= 2 ? sum_pairs<1> : taps <= 4 ? sum_pairs<2> : taps <= 6 ? sum_pairs<3> : sum_pairs<0>;
  sum(to, from, stride, weights, taps, count);
}

// ---------------------------------------------------------------- columns

// In each half: the elements of two pixels, side by side for each channel.
template <std::size_t kChannels>
constexpr std::array<char, kHalf> pairs_mask() {
  std::array<char, kHalf> mask{};
  for (std::size_t i = 0; i < kHalf; ++i) {
    const std::size_t channel = i / 4;
    const std::size_t element = channel + (i % 4 / 2) * kChannels;
    mask[i] = channel < kChannels ? static_cast<char>(2 * element + i % 2) : kZero;
  }
  return mask;
}

// Four pixels of four bytes each, in the order 0 2 1 3, as pixels of kChannels side by side.
template <std::size_t kChannels>
constexpr std::array<char, kHalf> pixels_mask() {
  constexpr std::array<std::size_t, 4> kPlaces{0, 8, 4, 12};
  std::array<char, kHalf> mask{};
  mask.fill(kZero);
  for (std::size_t i = 0; i < 4 * kChannels; ++i) {
    mask[i] = static_cast<char>(kPlaces[i / kChannels] + i % kChannels);
  }
  return mask;
}

// Below, kGroups is the number of groups if there are few, else 0.

// Returns the sums of one pixel's channels in two halves, which are to be added.
template <std::size_t kChannels>
PYECHO_TARGET inline __m256i sum_groups(const std::int16_t* pixels, const std::int16_t* weights, std::size_t groups,
                                        __m256i mask) noexcept {
  __m256i sum = _mm256_setzero_si256();
  for (std::size_t group = 0; group < groups; ++group, pixels += kGroup * kChannels, weights += kGroupWeights) {
    const __m256i four =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(pixels)), load_half(pixels + 2 * kChannels), 1);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(four, mask), load(weights)));
  }
  return sum;
}

PYECHO_TARGET inline __m256i add_halves(__m256i first, __m256i second) noexcept {
  return _mm256_add_epi32(_mm256_blend_epi32(first, second, 0xf0), _mm256_permute2x128_si256(first, second, 0x21));
}

template <std::size_t kChannels, std::size_t kGroups>
PYECHO_TARGET void sum_pixels(std::uint8_t* to, const std::int16_t* from, const Columns& columns) noexcept {
  static constexpr std::array<char, kHalf> kPairs = pairs_mask<kChannels>();
  static constexpr std::array<char, kHalf> kPixels = pixels_mask<kChannels>();
  const __m256i mask = _mm256_broadcastsi128_si256(load_half(kPairs.data()));
  const __m128i compact = load_half(kPixels.data());
  const __m256i rounding = _mm256_set1_epi32(1 << (kColumnShift - 1));
  // Copies, because bytes that are stored might be part of `columns`.
  const auto [firsts, all_weights, all_groups, outputs] = columns;
  const std::size_t groups = kGroups == 0 ? all_groups : kGroups;
  for (std::size_t done = 0; done < outputs; done += kPixelsAtOnce) {
    const std::size_t x = std::min(done, outputs - kPixelsAtOnce);  // the last ones overlap those before
    const std::int16_t* const weights = all_weights + x * groups * kGroupWeights;
    __m256i sums[kPixelsAtOnce];
    for (std::size_t i = 0; i < kPixelsAtOnce; ++i) {
      sums[i] = sum_groups<kChannels>(from + static_cast<std::size_t>(firsts[x + i]) * kChannels,
                                      weights + i * groups * kGroupWeights, groups, mask);
    }
    const __m256i low = _mm256_add_epi32(add_halves(sums[0], sums[1]), rounding);
    const __m256i high = _mm256_add_epi32(add_halves(sums[2], sums[3]), rounding);
    const __m256i words =
        _mm256_packs_epi32(_mm256_srai_epi32(low, kColumnShift), _mm256_srai_epi32(high, kColumnShift));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x08);
    const __m128i pixels = _mm_shuffle_epi8(_mm256_castsi256_si128(bytes), compact);
    if (x * kChannels + kHalf <= outputs * kChannels) {
      store_half(to + x * kChannels, pixels);
    } else {
      std::memcpy(to + x * kChannels, &pixels, kPixelsAtOnce * kChannels);
    }
  }
}

template <std::size_t kChannels>
void sum_grouped(std::uint8_t* to, const std::int16_t* from, const Columns& columns) noexcept {
  const auto sum = columns.groups == 1 ? sum_pixels<kChannels, 1> : sum_pixels<kChannels, 0>;
  sum(to, from, columns);
}

void sum_columns(std::uint8_t* to, const std::int16_t* from, const Columns& columns, std::size_t channels) noexcept {
  switch (columns.outputs < kPixelsAtOnce ? 0 : channels) {
    case 1:
      return sum_grouped<1>(to, from, columns);
    case 2:
      return sum_grouped<2>(to, from, columns);
    case 3:
      return sum_grouped<3>(to, from, columns);
    case 4:
      return sum_grouped<4>(to, from, columns);
    default:
      return kPlainKernels.sum_columns(to, from, columns, channels);
  }
}

// ---------------------------------------------------------------- moving

// Puts blocks of `bytes`, as many as fit, in reverse order at the end.
constexpr std::array<char, kHalf> reversing_mask(std::size_t bytes) {
  std::array<char, kHalf> mask{};
  for (std::size_t i = 0; i < kHalf / bytes * bytes; ++i) {
    mask[kHalf - (i / bytes + 1) * bytes + i % bytes] = static_cast<char>(i);
  }
  return mask;
}

constexpr auto kReversing = [] {
  std::array<std::array<char, kHalf>, kHalf + 1> masks{};
  for (std::size_t bytes = 1; bytes <= kHalf; ++bytes) {
    masks[bytes] = reversing_mask(bytes);
  }
  return masks;
}();

// Reads forwards, as processors prefetch best.
PYECHO_TARGET void reverse(std::byte* to, const std::byte* from, std::size_t count, std::size_t bytes) noexcept {
  if (bytes <= kHalf) {
    const __m128i mask = load_half(kReversing[bytes].data());
    const std::size_t blocks = kHalf / bytes;
    const std::size_t step = blocks * bytes;
    std::size_t left = count * bytes;
    for (; left >= kHalf; left -= step, from += step) {
      store_half(to + left - kHalf, _mm_shuffle_epi8(load_half(from), mask));
    }
    count = left / bytes;
  }
  kPlainKernels.reverse(to, from, count, bytes);
}

// Where channel `channel` of 16 pixels is in the `part`-th 16 bytes of them.
constexpr std::array<char, kHalf> channel_mask(std::size_t channel, std::size_t part) {
  std::array<char, kHalf> mask{};
  for (std::size_t i = 0; i < kHalf; ++i) {
    const std::size_t place = 3 * i + channel;
    mask[i] = place / kHalf == part ? static_cast<char>(place % kHalf) : kZero;
  }
  return mask;
}

PYECHO_TARGET void split_rgb(std::uint8_t* to, std::ptrdiff_t stride, const std::uint8_t* from,
                             std::size_t count) noexcept {
  static constexpr std::array<std::array<std::array<char, kHalf>, 3>, 3> kMasks{
      {{channel_mask(0, 0), channel_mask(0, 1), channel_mask(0, 2)},
       {channel_mask(1, 0), channel_mask(1, 1), channel_mask(1, 2)},
       {channel_mask(2, 0), channel_mask(2, 1), channel_mask(2, 2)}}};
  if (count < kHalf) {
    return kPlainKernels.split_rgb(to, stride, from, count);
  }
  for (std::size_t done = 0; done < count; done += kHalf) {
    const std::size_t i = std::min(done, count - kHalf);
    const __m128i first = load_half(from + 3 * i);
    const __m128i second = load_half(from + 3 * i + kHalf);
    const __m128i third = load_half(from + 3 * i + 2 * kHalf);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const auto& masks = kMasks[channel];
      const __m128i parts = _mm_or_si128(_mm_shuffle_epi8(first, load_half(masks[0].data())),
                                         _mm_shuffle_epi8(second, load_half(masks[1].data())));
      store_half(to + static_cast<std::ptrdiff_t>(channel) * stride + i,
                 _mm_or_si128(parts, _mm_shuffle_epi8(third, load_half(masks[2].data()))));
    }
  }
}

PYECHO_TARGET void scale_bytes(float* to, const std::uint8_t* from, const float* scale, const float* offset,
                               std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 scaled = _mm256_mul_ps(values, _mm256_loadu_ps(scale + i));
    _mm256_storeu_ps(to + i, _mm256_add_ps(scaled, _mm256_loadu_ps(offset + i)));
  }
  kPlainKernels.scale_bytes(to + i, from + i, scale + i, offset + i, count - i);
}

PYECHO_TARGET void to_halves(Half* to, const float* from, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    store_half(to + i, _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  kPlainKernels.to_halves(to + i, from + i, count - i);
}

PYECHO_TARGET void from_halves(float* to, const Half* from, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(load_half(from + i)));
  }
  kPlainKernels.from_halves(to + i, from + i, count - i);
}

}  // namespace

constinit const Kernels kAvx2Kernels{sum_rows, sum_columns, reverse, split_rgb, scale_bytes, to_halves, from_halves};

}  // namespace pyecho::ops

#endif
