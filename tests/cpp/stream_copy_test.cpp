#include "core/memory/stream_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <ranges>
#include <span>
#include <thread>
#include <vector>

#include "core/random.hpp"
#include "core/stage/gather.hpp"
#include "core/sync/event_count.hpp"

namespace pyecho {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
constexpr std::byte kUntouched{0xa5};

std::vector<std::byte> random_bytes(std::size_t size_bytes) {
  Xoshiro256 random(size_bytes);
  std::vector<std::byte> bytes(size_bytes);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random.below(256)); });
  return bytes;
}

TEST(StreamCopyTest, every_way_copies_every_byte_and_no_other) {
  const std::vector<std::byte> source = random_bytes(4096 + 2 * kLine);
  for (const StreamCopy way : stream_copies()) {
    for (const std::size_t size_bytes : {0UL, 1UL, 63UL, 64UL, 65UL, 127UL, 128UL, 1000UL, 1024UL, 4095UL, 4096UL}) {
      for (std::size_t to = 0; to < kLine; ++to) {
        const std::size_t from = (to * 7 + size_bytes) % kLine;
        std::vector<std::byte> memory(size_bytes + 3 * kLine, kUntouched);
        way(memory.data() + to, source.data() + from, size_bytes);
        stream_fence();
        for (std::size_t i = 0; i < memory.size(); ++i) {
          ASSERT_EQ(memory[i], i < to || i >= to + size_bytes ? kUntouched : source[from + i - to])
              << "byte " << i << " of " << size_bytes << " to " << to << " from " << from;
        }
      }
    }
  }
}

TEST(StreamCopyTest, little_memory_and_short_copies_stay_in_the_caches) {
  EXPECT_FALSE(worth_streaming(0, 0));
  EXPECT_FALSE(worth_streaming(std::size_t{64} << 10, 4096));
  EXPECT_FALSE(worth_streaming(kAll, 64));
  EXPECT_EQ(worth_streaming(kAll, 4096), !stream_copies().empty());
}

// A writer, and a reader that follows within nanoseconds. Without a fence, lines are still on their way to memory then,
// in about one round of a thousand.
class Chase {
 public:
  static constexpr std::size_t kBytes = 4096;

  // In every round, `write(round)` must store the round's number in all words that `read(round)` returns. Returns the
  // number of words in which the reader found another number.
  template <class Write, class Read>
  static std::ptrdiff_t missing(const Write& write, const Read& read) {
    std::atomic<std::uint32_t> published{0};
    std::atomic<std::uint32_t> seen{0};
    std::thread writer([&] {
      for (std::uint32_t round = 1; round <= kRounds; ++round) {
        await([&] { return seen.load(std::memory_order_acquire) >= round - 1; });
        if (seen.load(std::memory_order_acquire) == kEnough) {
          break;
        }
        write(round);
        published.store(round, std::memory_order_release);
      }
    });
    std::ptrdiff_t words = 0;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      await([&] { return published.load(std::memory_order_acquire) == round; });
      const std::span<const std::uint32_t> place = read(round);
      // From the end, because the last stores are the ones that may be missing.
      words += std::ranges::count_if(place | std::views::reverse, [&](std::uint32_t word) { return word != round; });
      const bool enough = std::chrono::steady_clock::now() - start > kLongest;
      seen.store(enough ? kEnough : round, std::memory_order_release);
      if (enough) {
        break;
      }
    }
    writer.join();
    return words;
  }

 private:
  static constexpr std::uint32_t kRounds = 50'000;
  static constexpr std::uint32_t kEnough = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::chrono::seconds kLongest{5};  // on a machine where threads do not run at the same time

  template <class Condition>
  static void await(const Condition& condition) {
    for (unsigned look = 0; !condition(); ++look) {
      if (look < 1000) {
        relax_processor();
      } else {
        std::this_thread::yield();
      }
    }
  }
};

constexpr std::uint32_t kPlaces = 64;

// A Gather that hands a half-made batch to another thread. Only its own fence orders the two.
TEST(StreamCopyTest, a_gather_fences_what_it_has_copied) {
  if (stream_copies().empty()) {
    GTEST_SKIP() << "no streaming stores in this build";
  }
  const SlotLayout layout({Chase::kBytes}, 1, false);
  SlotMemory slot(layout, 1);
  SlotRing ring(1, 1);
  BatchPool blocks(layout, 1, 0);
  const Plan plan{PlanConfig{}};
  Gather gather(ring, blocks, slot, plan, 1, true);
  std::vector<Batch> batches(kPlaces);
  for (Batch& batch : batches) {
    batch.memory = HostMemory(layout.batch_bytes());
    batch.uses = {{.slot = 0, .ordinal = 0, .source_index = 0, .last = false, .pass = 0}};
    batch.rows = 1;
  }
  const std::span<std::uint32_t> words(reinterpret_cast<std::uint32_t*>(slot.data()), Chase::kBytes / 4);
  const auto write = [&](std::uint32_t round) {
    std::ranges::fill(words, round);
    Batch& batch = batches[round % kPlaces];
    batch.copied = 0;
    gather.copy_planned(batch);
  };
  const auto read = [&](std::uint32_t round) {
    const std::byte* const data = batches[round % kPlaces].memory.data();
    return std::span(reinterpret_cast<const std::uint32_t*>(data), Chase::kBytes / 4);
  };
  EXPECT_EQ(Chase::missing(write, read), 0);
}

}  // namespace
}  // namespace pyecho
