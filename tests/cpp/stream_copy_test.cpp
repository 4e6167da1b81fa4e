#include "core/stream_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <ranges>
#include <span>
#include <thread>
#include <vector>

#include "core/random.hpp"
#include "core/wait_strategy.hpp"

namespace pyecho {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::byte kUntouched{0xa5};

std::vector<std::byte> random_bytes(std::size_t size_bytes) {
  Xoshiro256 random(size_bytes);
  std::vector<std::byte> bytes(size_bytes);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random.below(256)); });
  return bytes;
}

TEST(StreamCopyTest, every_way_copies_every_byte_and_no_other) {
  const std::vector<std::byte> source = random_bytes(4096 + 2 * kLine);
  for (const StreamCopy copy : stream_copies()) {
    for (const std::size_t size_bytes : {0UL, 1UL, 63UL, 64UL, 65UL, 127UL, 128UL, 1000UL, 1024UL, 4095UL, 4096UL}) {
      for (std::size_t to = 0; to < kLine; ++to) {
        const std::size_t from = (to * 7 + size_bytes) % kLine;
        std::vector<std::byte> memory(size_bytes + 3 * kLine, kUntouched);
        copy(memory.data() + to, source.data() + from, size_bytes);
        stream_fence();
        for (std::size_t i = 0; i < memory.size(); ++i) {
          ASSERT_EQ(memory[i], i < to || i >= to + size_bytes ? kUntouched : source[from + i - to])
              << "byte " << i << " of " << size_bytes << " to " << to << " from " << from;
        }
      }
    }
  }
}

TEST(StreamCopyTest, both_kinds_of_copy_are_the_same) {
  const std::vector<std::byte> source = random_bytes(5000);
  for (const std::size_t size_bytes : {8UL, 1023UL, 1024UL, 5000UL}) {
    for (const bool stream : {false, true}) {
      std::vector<std::byte> memory(source.size(), kUntouched);
      copy(memory.data(), source.data(), size_bytes, stream);
      stream_fence();
      EXPECT_TRUE(std::equal(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(size_bytes), memory.begin()));
      EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(size_bytes), memory.end(),
                              [](std::byte byte) { return byte == kUntouched; }));
    }
  }
}

// Looks closely for a while: the reader has to come in the nanoseconds after the writer.
template <class Condition>
void await(const Condition& condition) {
  for (unsigned look = 0; !condition(); ++look) {
    if (look < 1000) {
      relax_processor();
    } else {
      std::this_thread::yield();
    }
  }
}

// Without the fence about one in a thousand rounds finds a line missing that is still on its way to memory.
TEST(StreamCopyTest, a_reader_finds_what_was_copied_before_the_fence) {
  constexpr std::size_t kBytes = 4096;
  constexpr std::uint32_t kPlaces = 64;
  constexpr std::uint32_t kRounds = 50'000;
  std::vector<std::uint32_t> memory(kPlaces * kBytes / sizeof(std::uint32_t));
  std::atomic<std::uint32_t> published{0};
  std::atomic<std::uint32_t> seen{0};
  const auto place = [&](std::uint32_t round) {
    return std::span(memory).subspan(round % kPlaces * (kBytes / 4), kBytes / 4);
  };
  std::thread writer([&] {
    std::vector<std::uint32_t> source(kBytes / sizeof(std::uint32_t));
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      std::ranges::fill(source, round);
      await([&] { return seen.load(std::memory_order_acquire) == round - 1; });
      stream_copy(std::as_writable_bytes(place(round)).data(), std::as_bytes(std::span(source)).data(), kBytes);
      stream_fence();
      published.store(round, std::memory_order_release);
    }
  });
  std::ptrdiff_t missing = 0;
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    await([&] { return published.load(std::memory_order_acquire) == round; });
    // From the end: what was stored last is what might be missing.
    missing +=
        std::ranges::count_if(place(round) | std::views::reverse, [&](std::uint32_t value) { return value != round; });
    seen.store(round, std::memory_order_release);
  }
  writer.join();
  EXPECT_EQ(missing, 0);
}

TEST(StreamCopyTest, little_memory_stays_in_the_caches) {
  EXPECT_FALSE(worth_streaming(0));
  EXPECT_FALSE(worth_streaming(std::size_t{64} << 10));
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  EXPECT_TRUE(worth_streaming(std::numeric_limits<std::size_t>::max()));
#endif
}

}  // namespace
}  // namespace pyecho
