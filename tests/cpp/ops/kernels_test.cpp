#include "core/ops/kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/memory/stream_copy.hpp"
#include "core/ops/resampler.hpp"
#include "core/random.hpp"

namespace pyecho::ops {
namespace {

// Runs a kernel of both versions on memory of just the size that it may use.
template <class T, class Run>
void expect_same(std::size_t count, const Run& run) {
  std::vector<T> plain(count);
  std::vector<T> best(count);
  run(kPlainKernels, plain.data());
  run(kernels(), best.data());
  ASSERT_TRUE(count == 0 || std::memcmp(plain.data(), best.data(), count * sizeof(T)) == 0) << count << " elements";
}

template <class T>
std::vector<T> random_values(Xoshiro256& random, std::size_t count, std::uint32_t bound) {
  std::vector<T> values(count);
  std::ranges::generate(values, [&] { return static_cast<T>(random.below(bound)); });
  return values;
}

TEST(KernelsTest, rows_of_bytes_are_summed_alike) {
  Xoshiro256 random(1);
  for (std::size_t round = 0; round < 2000; ++round) {
    const std::size_t count = random.below(200);
    const std::size_t taps = 1 + random.below(9);
    const std::vector<std::uint16_t> weights(taps, static_cast<std::uint16_t>(kWholeRow / taps));
    const auto rows = random_values<std::uint8_t>(random, count * taps, 256);
    expect_same<std::int16_t>(count, [&](const Kernels& kernel, std::int16_t* to) {
      kernel.sum_rows(to, rows.data(), static_cast<std::ptrdiff_t>(count), weights.data(), taps, count);
    });
  }
}

TEST(KernelsTest, columns_of_pixels_are_summed_alike) {
  Xoshiro256 random(2);
  for (std::size_t round = 0; round < 2000; ++round) {
    const std::size_t channels = 1 + random.below(5);
    const std::int64_t inputs = 1 + random.below(100);
    const std::int64_t outputs = 1 + random.below(40);
    Window source = Window::all(inputs);
    if (round % 2 == 0) {
      source.flip();
    }
    std::vector<std::byte> tables(Taps::bytes(static_cast<std::size_t>(outputs), Taps::most_of(inputs, outputs)));
    Taps taps({source, outputs, Window::all(outputs), 0, 0}, false, tables.data());
    if (taps.most > static_cast<std::int64_t>(kMostIntegerTaps)) {
      continue;
    }
    taps.write_integers();
    const auto pixels = random_values<std::int16_t>(
        random, (static_cast<std::size_t>(inputs) + taps.groups * kGroup) * channels + kSlackBytes / 2,
        255 << kPixelBits);
    expect_same<std::uint8_t>(taps.outputs * channels, [&](const Kernels& kernel, std::uint8_t* to) {
      kernel.sum_columns(to, pixels.data(), taps, channels);
    });
  }
}

TEST(KernelsTest, elements_are_moved_alike) {
  Xoshiro256 random(3);
  for (std::size_t count = 0; count < 100; ++count) {
    const auto bytes = random_values<std::uint8_t>(random, count * 24, 256);
    for (std::size_t size = 1; size <= 24; ++size) {
      expect_same<std::byte>(count * size, [&](const Kernels& kernel, std::byte* to) {
        kernel.reverse(to, reinterpret_cast<const std::byte*>(bytes.data()), count, size);
      });
    }
    expect_same<std::uint8_t>(
        count * 3, [&](const Kernels& kernel, std::uint8_t* to) { kernel.split_rgb(to, count, bytes.data(), count); });
  }
}

TEST(KernelsTest, bytes_are_scaled_alike) {
  Xoshiro256 random(5);
  for (std::size_t count = 0; count < 300; ++count) {
    const auto bytes = random_values<std::uint8_t>(random, count, 256);
    std::vector<float> factors(count + 1);
    std::ranges::generate(factors, [&] { return static_cast<float>(unit_at(random.next(), 0) - 0.5); });
    for (const bool stream : {false, true}) {
      expect_same<float>(count, [&](const Kernels& kernel, float* to) {
        kernel.scale_bytes(to, bytes.data(), factors.data(), factors.data() + 1, count, stream);
        stream_fence();
      });
    }
  }
}

TEST(KernelsTest, halves_are_converted_alike) {
  Xoshiro256 random(4);
  for (std::size_t count = 0; count < 3000; ++count) {
    std::vector<float> floats(count);
    std::ranges::generate(floats, [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random.next())); });
    expect_same<Half>(count, [&](const Kernels& kernel, Half* to) { kernel.to_halves(to, floats.data(), count); });
  }
}

}  // namespace
}  // namespace pyecho::ops
