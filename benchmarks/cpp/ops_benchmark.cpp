// Measures operations on one thread beside bare loops that do the same to the same parts of the same items.
//
// Both take turns, in reverse order every other round; the first round does not count.
//
//     ops_benchmark [rounds] [part of the names of cases]
//
// Prints a table: median microseconds of processor time for an item, and the bare loop's time divided by ours.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "core/memory/host_memory.hpp"
#include "core/ops/program.hpp"
#include "core/random.hpp"

namespace {

using pyecho::HostMemory;
using pyecho::ops::Element;
using pyecho::ops::Kind;
using pyecho::ops::Operation;
using pyecho::ops::Program;
using Shape = std::vector<std::uint64_t>;
// Makes a row of an item.
using Make = std::function<void(std::uint64_t key, const std::byte* item, std::byte* row)>;

constexpr std::size_t kBlockRows = 64;  // rows are written to a block of so many in turn

struct Case {
  std::string name;
  Element element;
  std::size_t element_bytes;
  Shape shape;
  std::size_t items;
  std::size_t uses;  // in a round
  std::vector<Operation> operations;
  Make bare;
};

std::size_t elements_of(const Shape& shape) {
  std::size_t count = 1;
  for (const std::uint64_t extent : shape) {
    count *= extent;
  }
  return count;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double unit(std::uint64_t key, std::uint32_t draws, std::uint64_t i) {
  return pyecho::unit_at(pyecho::mix64(key + (draws + 1ULL) * pyecho::kGoldenGamma), i);
}

std::size_t place(std::uint64_t key, std::uint64_t i, std::size_t bound) {
  return static_cast<std::size_t>(unit(key, 0, i) * static_cast<double>(bound));
}

HostMemory random_memory(std::size_t size_bytes) {
  HostMemory memory(size_bytes);
  pyecho::Xoshiro256 random(1);
  for (std::size_t i = 0; i + 8 <= size_bytes; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(memory.data() + i, &word, 8);
  }
  return memory;
}

void measure(const Case& what, int rounds) {
  const Program program({what.element, what.element_bytes, what.shape}, what.operations);
  const std::size_t item_bytes = elements_of(what.shape) * what.element_bytes;
  const std::size_t row_bytes = elements_of(program.output().shape) * program.output().element_bytes;
  const HostMemory items = random_memory(what.items * item_bytes);
  const HostMemory rows(kBlockRows * row_bytes);
  const HostMemory scratch(std::max<std::size_t>(program.scratch_bytes(what.shape), 1));
  const Make ours = [&](std::uint64_t key, const std::byte* item, std::byte* row) {
    program.run(key, item, what.shape, row, scratch.data(), true);
  };
  std::array<std::vector<double>, 2> microseconds;
  std::uint64_t key = 0;
  for (int round = 0; round <= rounds; ++round) {
    const std::uint64_t first = key;
    for (int turn = 0; turn < 2; ++turn) {
      const std::size_t which = (turn + round) % 2 == 0 ? 0 : 1;
      const Make& make = which == 0 ? ours : what.bare;
      key = first;
      const std::clock_t start = std::clock();
      for (std::size_t use = 0; use < what.uses; ++use) {
        const std::size_t item = pyecho::mix64(++key) % what.items;
        make(key, items.data() + item * item_bytes, rows.data() + use % kBlockRows * row_bytes);
      }
      const auto ticks = static_cast<double>(std::clock() - start);
      if (round > 0) {
        microseconds[which].push_back(ticks * 1e6 / CLOCKS_PER_SEC / static_cast<double>(what.uses));
      }
    }
  }
  const double us = median(microseconds[0]);
  const double bare_us = median(microseconds[1]);
  std::printf("%-44s | %9.2f %9.2f | %5.2f\n", what.name.c_str(), us, bare_us, bare_us / us);
}

// ---------------------------------------------------------------- bare loops

constexpr std::size_t kSize = 224;
constexpr std::size_t kPixel = 3;

struct Weighted {
  std::size_t first;
  std::vector<float> weights;
};

std::vector<Weighted> weights_of(std::size_t extent, std::size_t size) {
  std::vector<Weighted> result(size);
  const float scale = static_cast<float>(extent) / static_cast<float>(size);
  const float support = std::max(1.0F, scale);
  for (std::size_t i = 0; i < size; ++i) {
    const float middle = (static_cast<float>(i) + 0.5F) * scale;
    const auto first = static_cast<std::size_t>(std::max(0.0F, middle - support + 0.5F));
    const auto end = std::min(extent, static_cast<std::size_t>(middle + support + 0.5F));
    float sum = 0;
    for (std::size_t j = first; j < end; ++j) {
      result[i].weights.push_back(std::max(0.0F, support - std::fabs(static_cast<float>(j) + 0.5F - middle)));
      sum += result[i].weights.back();
    }
    std::ranges::for_each(result[i].weights, [&](float& weight) { weight /= sum; });
    result[i].first = first;
  }
  return result;
}

// RandomResizedCrop, RandomFlip, Normalize and ToCHW in floats, row by row.
void bare_resized_crop(std::uint64_t key, const std::byte* item, std::byte* row, std::size_t rows,
                       std::size_t columns) {
  double height = static_cast<double>(rows);
  double width = static_cast<double>(columns);
  std::size_t y = 0;
  std::size_t x = 0;
  for (std::uint64_t draw = 0; draw < 40; draw += 4) {
    const double area = static_cast<double>(rows * columns) * (0.08 + unit(key, 0, draw) * 0.92);
    const double ratio = std::exp(std::log(0.75) + unit(key, 0, draw + 1) * (std::log(4.0 / 3) - std::log(0.75)));
    const double h = std::nearbyint(std::sqrt(area / ratio));
    const double w = std::nearbyint(std::sqrt(area * ratio));
    if (h <= height && w <= width) {
      height = h;
      width = w;
      y = place(key, draw + 2, rows - static_cast<std::size_t>(h) + 1);
      x = place(key, draw + 3, columns - static_cast<std::size_t>(w) + 1);
      break;
    }
  }
  const bool flip = unit(key, 1, 0) < 0.5;
  const std::vector<Weighted> down = weights_of(static_cast<std::size_t>(height), kSize);
  const std::vector<Weighted> along = weights_of(static_cast<std::size_t>(width), kSize);
  const std::size_t elements = static_cast<std::size_t>(width) * kPixel;
  std::vector<float> sums(elements);
  auto* const image = reinterpret_cast<const std::uint8_t*>(item) + (y * columns + x) * kPixel;
  auto* const out = reinterpret_cast<float*>(row);
  for (std::size_t i = 0; i < kSize; ++i) {
    std::ranges::fill(sums, 0.0F);
    for (std::size_t tap = 0; tap < down[i].weights.size(); ++tap) {
      const std::uint8_t* const from = image + (down[i].first + tap) * columns * kPixel;
      const float weight = down[i].weights[tap];
      for (std::size_t j = 0; j < elements; ++j) {
        sums[j] += weight * static_cast<float>(from[j]);
      }
    }
    for (std::size_t j = 0; j < kSize; ++j) {
      std::array<float, kPixel> pixel{};
      for (std::size_t tap = 0; tap < along[j].weights.size(); ++tap) {
        for (std::size_t channel = 0; channel < kPixel; ++channel) {
          pixel[channel] += along[j].weights[tap] * sums[(along[j].first + tap) * kPixel + channel];
        }
      }
      for (std::size_t channel = 0; channel < kPixel; ++channel) {
        out[(channel * kSize + i) * kSize + (flip ? kSize - 1 - j : j)] = pixel[channel] * 0.017F - 2.0F;
      }
    }
  }
}

// As in a program that does not know sizes: the compiler makes slow copies of sizes that it knows.
volatile std::size_t unknown_size = kSize;
volatile std::size_t unknown_patch_bytes = 96 * sizeof(std::int16_t);

void bare_crop(std::uint64_t key, const std::byte* item, std::byte* row, std::size_t extent) {
  const std::size_t size = unknown_size;
  const std::size_t y = place(key, 0, extent - size + 1);
  const std::size_t x = place(key, 1, extent - size + 1);
  for (std::size_t i = 0; i < size; ++i) {
    std::memcpy(row + i * size * kPixel, item + ((y + i) * extent + x) * kPixel, size * kPixel);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  if (rounds < 1) {
    std::fputs("usage: ops_benchmark [rounds >= 1] [part of the names of cases]\n", stderr);
    return 2;
  }
  const Operation crop{.kind = Kind::kCrop, .axes = {0, 1}, .sizes = {kSize, kSize}};
  const Operation flip{.kind = Kind::kFlip, .draws = 1, .axes = {1}, .numbers = {0.5}};
  Operation always = flip;
  always.numbers = {1};
  const Operation resized{
      .kind = Kind::kResizedCrop, .axes = {0, 1}, .sizes = {kSize, kSize}, .numbers = {0.08, 1, 0.75, 4.0 / 3}};
  const Operation normalize{.kind = Kind::kNormalize, .numbers = {0.485, 0.456, 0.406, 0.229, 0.224, 0.225}};
  const Operation to_chw{.kind = Kind::kToChw};
  const auto bare_image = [](std::uint64_t key, const std::byte* item, std::byte* row) {
    bare_crop(key, item, row, 256);
  };
  const Shape image{256, 256, kPixel};
  const Shape clips{128, 112, 112, kPixel};
  const Shape volume{512, 512, 200};
  constexpr std::size_t kFrame = std::size_t{112} * 112 * kPixel;
  constexpr std::size_t kPatch = 96;
  const std::vector<Case> cases{
      {"resized crop, flip, normalize, CHW",
       Element::kUint8,
       1,
       {400, 500, kPixel},
       64,
       200,
       {resized, flip, normalize, to_chw},
       [](std::uint64_t key, const std::byte* item, std::byte* row) { bare_resized_crop(key, item, row, 400, 500); }},
      {"crop", Element::kUint8, 1, image, 256, 5000, {crop}, bare_image},
      {"crop, always flipped / crop alone", Element::kUint8, 1, image, 256, 5000, {crop, always}, bare_image},
      {"crop, flip, normalize, CHW / crop alone",
       Element::kUint8,
       1,
       image,
       256,
       1000,
       {crop, flip, normalize, to_chw},
       bare_image},
      {"16 of 128 frames",
       Element::kUint8,
       1,
       clips,
       16,
       1000,
       {{.kind = Kind::kCrop, .axes = {0}, .sizes = {16}}},
       [](std::uint64_t key, const std::byte* item, std::byte* row) {
         std::memcpy(row, item + place(key, 0, 113) * kFrame, 16 * kFrame);
       }},
      {"96^3 of 512x512x200, int16",
       Element::kInt16,
       2,
       volume,
       2,
       300,
       {{.kind = Kind::kCrop, .axes = {0, 1, 2}, .sizes = {kPatch, kPatch, kPatch}}},
       [](std::uint64_t key, const std::byte* item, std::byte* row) {
         const std::byte* const from =
             item + ((place(key, 0, 417) * 512 + place(key, 1, 417)) * 200 + place(key, 2, 105)) * 2;
         const std::size_t bytes = unknown_patch_bytes;
         for (std::size_t i = 0; i < kPatch; ++i) {
           for (std::size_t j = 0; j < kPatch; ++j) {
             std::memcpy(row + (i * kPatch + j) * bytes, from + (i * 512 + j) * 400, bytes);
           }
         }
       }},
      {"crop of a 32x32x3 image padded to 40x40",
       Element::kUint8,
       1,
       {32, 32, kPixel},
       1000,
       100'000,
       {{.kind = Kind::kPad, .axes = {0, 1}, .sizes = {40, 40}, .numbers = {0}},
        {.kind = Kind::kCrop, .axes = {0, 1}, .sizes = {32, 32}}},
       [](std::uint64_t key, const std::byte* item, std::byte* row) {
         const auto y = static_cast<std::ptrdiff_t>(place(key, 0, 9)) - 4;
         const auto x = static_cast<std::ptrdiff_t>(place(key, 1, 9)) - 4;
         const std::ptrdiff_t width = 32 - std::abs(x);
         std::memset(row, 0, 3072);
         for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, -y); i < std::min<std::ptrdiff_t>(32, 32 - y); ++i) {
           std::memcpy(row + (i * 32 + std::max<std::ptrdiff_t>(0, -x)) * 3,
                       item + ((i + y) * 32 + std::max<std::ptrdiff_t>(0, x)) * 3, static_cast<std::size_t>(width) * 3);
         }
       }},
  };
  std::puts("                                             | us: ours      bare | ratio of speeds");
  for (const Case& what : cases) {
    if (what.name.find(argc > 2 ? argv[2] : "") != std::string::npos) {
      measure(what, rounds);
    }
  }
}
