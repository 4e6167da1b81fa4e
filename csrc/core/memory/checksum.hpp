// Checksums of saved items, and work on many of them in several threads.
//
// They find damage: a change goes unnoticed once in 2^64, or if the sums of the words, and the sums of these sums, stay
// what they were. They do not protect against somebody who means to forge a state.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "core/memory/machine.hpp"
#include "core/memory/parallel.hpp"
#include "core/random.hpp"

namespace pyecho {

// Returns the seed for the checksum of one leaf of an item.
[[nodiscard]] constexpr std::uint64_t row_seed(std::uint64_t number, std::size_t leaf) noexcept {
  return number + leaf * kGoldenGamma;
}

// Returns the checksum of these bytes for this seed, the same on every platform of one byte order. Copies them to
// `copy`, if there is one: then memory is the limit, and the checksum costs little.
inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed,
                              std::byte* copy = nullptr) noexcept {
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kBlock = kLanes * sizeof(std::uint64_t);
  const auto mixed = [](std::uint64_t sum, std::uint64_t word) { return mix64((sum ^ word) + kGoldenGamma); };
  // Sums of the words in each lane, and sums of these sums, which tell their order; compilers make vectors of them.
  std::array<std::uint64_t, kLanes> sums{};
  std::array<std::uint64_t, kLanes> sums_of_sums{};
  std::uint64_t sum = mixed(seed, bytes.size());
  std::size_t done = 0;
  for (; done + kBlock <= bytes.size(); done += kBlock) {
    std::array<std::uint64_t, kLanes> words;  // NOLINT(cppcoreguidelines-pro-type-member-init): written below
    std::memcpy(words.data(), bytes.data() + done, kBlock);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += words[lane];
      sums_of_sums[lane] += sums[lane];
    }
    if (copy != nullptr) {
      std::memcpy(copy + done, words.data(), kBlock);
    }
  }
  for (std::size_t lane = 0; done > 0 && lane < kLanes; ++lane) {  // side by side, since a chain of these takes long
    sum += mixed(mixed(lane, sums[lane]), sums_of_sums[lane]);
  }
  if (copy != nullptr) {
    std::memcpy(copy + done, bytes.data() + done, bytes.size() - done);
  }
  for (; done < bytes.size(); done += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + done, std::min(sizeof(word), bytes.size() - done));
    sum = mixed(sum, word);
  }
  return sum;
}

// Returns the sum of part(begin, end) over parts of [0, count), in several threads if all items together have many
// bytes. `part` must not throw.
template <class Part>
std::uint64_t sum_in_parallel(std::size_t count, std::size_t item_bytes, const Part& part) {
  constexpr std::size_t kBytesPerThread = std::size_t{4} << 20;
  const std::size_t useful = count * item_bytes / kBytesPerThread + 1;
  const auto threads = std::min<std::size_t>({useful, machine_cores(), 8});
  std::vector<std::uint64_t> sums(threads);
  in_parallel(threads, [&](std::size_t thread) {
    sums[thread] = part(count * thread / threads, count * (thread + 1) / threads);
  });
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

// Returns the sum of the checksums of one leaf of items with these numbers, whose bytes lie side by side.
template <class Number>
std::uint64_t checksum_of_column(std::span<const std::byte> column, std::span<const Number> numbers, std::size_t leaf) {
  const std::size_t row_bytes = numbers.empty() ? 0 : column.size() / numbers.size();
  return sum_in_parallel(numbers.size(), row_bytes, [&](std::size_t begin, std::size_t end) {
    std::uint64_t sum = 0;
    for (std::size_t i = begin; i < end && row_bytes > 0; ++i) {
      sum += checksum(column.subspan(i * row_bytes, row_bytes), row_seed(static_cast<std::uint64_t>(numbers[i]), leaf));
    }
    return sum;
  });
}

}  // namespace pyecho
