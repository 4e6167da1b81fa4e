// Checksums of saved items, and work on many of them in several threads.
//
// They find damage: a change of any one word always changes the checksum, and other changes do but for one in 2^64. They
// do not protect against somebody who means to forge a state.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/plan/random.hpp"

namespace pyecho {

// Returns the seed for the checksum of one leaf of an item.
[[nodiscard]] constexpr std::uint64_t row_seed(std::uint64_t number, std::size_t leaf) noexcept {
  return number + leaf * kGoldenGamma;
}

// Returns the checksum of these bytes for this seed. The same on every platform of one byte order.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const auto word_at = [](const std::byte* from, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, size);
    return word;
  };
  // A bijection of the lane and of the word.
  const auto step = [](std::uint64_t lane, std::uint64_t word) {
    return std::rotl((lane ^ word) * 0x9FB21C651E98DF25U, 29) + kGoldenGamma;
  };
  if (bytes.size() <= kWord) {  // a label, often
    return mix64(step(seed ^ bytes.size() << 32, word_at(bytes.data(), bytes.size())));
  }
  // Eight lanes, because a multiplication takes several cycles.
  std::array<std::uint64_t, 8> lanes{};
  for (std::uint64_t lane = 0; lane < lanes.size(); ++lane) {
    lanes[lane] = (seed ^ bytes.size() << 32) + lane * kGoldenGamma;
  }
  const std::byte* data = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= sizeof(lanes); left -= sizeof(lanes), data += sizeof(lanes)) {
    [&]<std::size_t... kLane>(std::index_sequence<kLane...>) {  // unrolled, so that the lanes stay in registers
      ((lanes[kLane] = step(lanes[kLane], word_at(data + kLane * kWord, kWord))), ...);
    }(std::make_index_sequence<8>());
  }
  for (std::size_t lane = 0; left > 0; ++lane) {
    const std::size_t part = std::min(left, kWord);
    lanes[lane] = step(lanes[lane], word_at(data, part));
    data += part;
    left -= part;
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) {
    sum = step(sum, lane);
  }
  return mix64(sum);
}

// Returns the sum of part(begin, end) over parts of [0, count), in several threads if all items together have many bytes.
// `part` must not throw.
template <class Part>
std::uint64_t sum_in_parallel(std::size_t count, std::size_t item_bytes, const Part& part) {
  constexpr std::size_t kBytesPerThread = std::size_t{4} << 20;
  const std::size_t useful = count * item_bytes / kBytesPerThread + 1;
  const auto threads = std::min<std::size_t>({useful, std::max(1U, std::thread::hardware_concurrency()), 8});
  std::vector<std::uint64_t> sums(threads);
  std::vector<std::thread> helpers;
  const auto run = [&](std::size_t thread) {
    sums[thread] = part(count * thread / threads, count * (thread + 1) / threads);
  };
  std::size_t started = 1;
  try {
    helpers.reserve(threads);
    for (; started < threads; ++started) {
      helpers.emplace_back(run, started);
    }
  } catch (const std::exception&) {  // no more threads can be started, so this one does the rest
  }
  run(0);
  for (; started < threads; ++started) {
    run(started);
  }
  std::uint64_t sum = 0;
  for (std::thread& helper : helpers) {
    helper.join();
  }
  for (const std::uint64_t each : sums) {
    sum += each;
  }
  return sum;
}

}  // namespace pyecho
