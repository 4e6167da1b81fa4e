// Rings of few cells under many threads, so that they wrap all the time: no number is lost, doubled or reordered.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "../support/stress_items.hpp"
#include "core/random.hpp"
#include "core/sync/index_ring.hpp"

namespace pyecho::test {
namespace {

constexpr std::array<std::uint32_t, 3> kCapacities{1, 4, 32};
constexpr std::array<unsigned, 3> kThreads{1, 2, 4};
constexpr unsigned kProducerShift = 28;  // a number is producer * 2^28 + its position
constexpr std::uint32_t kMostAtOnce = 32;

void in_threads(unsigned count, const std::function<void(unsigned)>& work) {
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < count; ++thread) {
    threads.emplace_back([&work, thread] { work(thread); });
  }
}

// The numbers that one consumer has got: how many, their sum, and whether each producer's came in order.
struct Tally {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  bool ordered = true;
  std::array<std::uint32_t, kThreads.back()> least{};

  void add(std::uint32_t number) {
    std::uint32_t& least_position = least.at(number >> kProducerShift);
    const std::uint32_t position = number & ((1U << kProducerShift) - 1);
    ordered = ordered && position >= least_position;
    least_position = position + 1;
    sum += mix64(number);
    ++count;
  }
};

void push_and_pop(unsigned producers, unsigned consumers, std::uint32_t capacity, std::uint32_t share) {
  IndexRing<> ring(capacity);
  std::vector<Tally> tallies(consumers);
  std::atomic<std::uint64_t> left{std::uint64_t{share} * producers};
  in_threads(producers + consumers, [&](unsigned thread) {
    Xoshiro256 random(thread);
    std::array<std::uint32_t, kMostAtOnce> numbers{};
    if (thread < producers) {
      for (std::uint32_t position = 0, pushed = 0; position < share; position += pushed) {
        const auto group = std::span(numbers).first(std::min(1 + random.below(kMostAtOnce), share - position));
        std::iota(group.begin(), group.end(), (thread << kProducerShift) | position);
        if (pushed = ring.try_push(group); pushed == 0) {
          std::this_thread::yield();
        }
      }
      return;
    }
    Tally tally;
    while (left.load(std::memory_order_relaxed) > 0) {
      const std::uint32_t popped = ring.try_pop(std::span(numbers).first(1 + random.below(kMostAtOnce)));
      std::for_each_n(numbers.begin(), popped, [&](std::uint32_t number) { tally.add(number); });
      left.fetch_sub(popped, std::memory_order_relaxed);
      if (popped == 0) {
        std::this_thread::yield();
      }
    }
    tallies[thread - producers] = tally;
  });
  Tally expected;
  for (unsigned producer = 0; producer < producers; ++producer) {
    for (std::uint32_t position = 0; position < share; ++position) {
      expected.add((producer << kProducerShift) | position);
    }
  }
  Tally found;
  for (const Tally& tally : tallies) {
    EXPECT_TRUE(tally.ordered);
    found.count += tally.count;
    found.sum += tally.sum;
  }
  EXPECT_EQ(found.count, expected.count);
  EXPECT_EQ(found.sum, expected.sum);
}

TEST(RingStress, pushed_numbers_come_once_and_in_order) {
  for (const std::uint32_t capacity : kCapacities) {
    for (const unsigned producers : kThreads) {
      for (const unsigned consumers : kThreads) {
        push_and_pop(producers, consumers, capacity, static_cast<std::uint32_t>(stress_items() / 40 / producers));
      }
    }
  }
}

TEST(RingStress, numbers_under_tickets_come_in_the_order_of_tickets) {
  for (const std::uint32_t capacity : kCapacities) {
    for (const unsigned producers : kThreads) {
      const std::uint64_t items = stress_items() / 40;
      IndexRing<> ring(capacity);
      std::atomic<std::uint64_t> tickets{0};
      std::atomic<std::uint64_t> popped{0};
      bool ordered = true;
      in_threads(producers + 1, [&](unsigned thread) {
        if (thread > 0) {
          for (std::uint64_t ticket = tickets++; ticket < items; ticket = tickets++) {
            while (ticket >= popped.load(std::memory_order_acquire) + ring.capacity()) {
              std::this_thread::yield();
            }
            ring.publish(ticket, static_cast<std::uint32_t>(mix64(ticket)));
          }
          return;
        }
        std::array<std::uint32_t, kMostAtOnce> numbers{};
        for (std::uint64_t next = 0; next < items;) {
          const std::uint32_t count = ring.try_pop(numbers);
          for (std::uint32_t i = 0; i < count; ++i, ++next) {
            ordered = ordered && numbers.at(i) == static_cast<std::uint32_t>(mix64(next));
          }
          popped.store(next, std::memory_order_release);
          if (count == 0) {
            std::this_thread::yield();
          }
        }
      });
      EXPECT_TRUE(ordered) << producers << " producers, capacity " << capacity;
      EXPECT_EQ(popped.load(), items);
    }
  }
}

}  // namespace
}  // namespace pyecho::test
