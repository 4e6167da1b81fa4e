// A seeded permutation of [0, size) that holds nothing: place i is computed when it is asked for.
//
// A Feistel network over a grid of about size cells, a * b >= size, each side about the square root. A round adds a
// pseudo-random number of one coordinate to the other, which can be undone, so the whole is a permutation of the grid.
// Results beyond `size` are permuted again until they are below it (cycle walking): rarely, as the grid has less
// than one row of cells too many.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.hpp"

namespace pyecho {

class Permutation {
 public:
  static constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62;

  // Requires 1 <= size <= kMaxSize.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) noexcept
      : size_(size),
        key_(stream_key(seed, epoch, Draws::kOrder)),
        columns_(static_cast<std::uint64_t>(std::sqrt(static_cast<double>(size))) + 1),
        rows_((size - 1) / columns_ + 1) {}

  // Requires place < size.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t place) const noexcept {
    do {
      place = shuffled(place);
    } while (place >= size_);
    return place;
  }

 private:
  static constexpr std::uint64_t kRounds = 16;  // with 8, permutations of 4 to 6 places are not equally likely

  [[nodiscard]] std::uint64_t shuffled(std::uint64_t place) const noexcept {
    std::uint64_t row = place / columns_;
    std::uint64_t column = place % columns_;
    for (std::uint64_t round = 0; round < kRounds; round += 2) {
      column = moved(column, row, columns_, round);
      row = moved(row, column, rows_, round + 1);
    }
    return row * columns_ + column;
  }

  // Returns `value` and a number that `other` decides, modulo `size`, which is below 2^32.
  [[nodiscard]] std::uint64_t moved(std::uint64_t value, std::uint64_t other, std::uint64_t size,
                                    std::uint64_t round) const noexcept {
    const std::uint64_t random = mix64(key_ + (other * kRounds + round + 1) * kGoldenGamma) >> 32;
    const std::uint64_t sum = value + ((random * size) >> 32);
    return sum < size ? sum : sum - size;
  }

  std::uint64_t size_;
  std::uint64_t key_;
  std::uint64_t columns_;
  std::uint64_t rows_;
};

}  // namespace pyecho
