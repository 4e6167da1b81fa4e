// Rings under real threads: producers x consumers x wait strategies. No item is lost or duplicated, and
// each producer's items arrive in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "../support/stress_items.hpp"
#include "core/plan/random.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/index_ring.hpp"

namespace pyecho::test {
namespace {

// A blocking ring, made of an IndexRing and EventCounts.
class BlockingRing {
 public:
  BlockingRing(std::uint32_t capacity, WaitStrategy strategy) : ring_(capacity), strategy_(strategy) {}

  void push(std::span<const std::uint32_t> items) {
    while (!items.empty()) {
      const std::uint64_t seen = popped_.read();
      if (const std::uint32_t pushed = ring_.try_push(items); pushed > 0) {
        pushed_.advance(pushed);
        items = items.subspan(pushed);
      } else {
        static_cast<void>(popped_.await(seen + 1, kNever, strategy_, [] { return false; }));
      }
    }
  }
  // Returns 0 after the last item.
  std::uint32_t pop(std::span<std::uint32_t> items) {
    const auto ended = [this] { return closed_.load_acquire() != 0 && popped_.read() == pushed_.read(); };
    for (;;) {
      const std::uint64_t seen = pushed_.read();
      if (const std::uint32_t popped = ring_.try_pop(items); popped > 0) {
        popped_.advance(popped);
        return popped;
      }
      if (ended()) {
        return 0;
      }
      static_cast<void>(pushed_.await(seen + 1, kNever, strategy_, ended));
    }
  }
  void close() {
    closed_.store_release(1);
    pushed_.alert();
  }
  void alert_after_last() { pushed_.alert(); }

 private:
  IndexRing<> ring_;
  WaitStrategy strategy_;
  EventCount pushed_;
  EventCount popped_;
  Atomic<std::uint32_t> closed_;
};

// The items that one consumer received. The number of an item is producer * 2^29 + its position.
struct Tally {
  std::uint64_t count = 0;
  std::uint64_t checksum = 0;
  std::vector<std::uint32_t> last = std::vector<std::uint32_t>(8, 0);
  bool ordered = true;

  void add(std::uint32_t item) {
    const std::uint32_t producer = item >> 29;
    const std::uint32_t position = (item & 0x1FFFFFFFU) + 1;
    ordered = ordered && position > last[producer];
    last[producer] = position;
    checksum += std::uint64_t{item} * item + item;
    ++count;
  }
};

// The number of items per call: one, or in bulk up to 32.
struct Groups {
  bool bulk;
  Xoshiro256 random{1};
  std::array<std::uint32_t, 32> items{};

  std::span<std::uint32_t> next() { return std::span(items).first(bulk ? 1 + random.below(32) : 1); }
};

void stress(unsigned producers, unsigned consumers, std::uint32_t capacity, WaitStrategy strategy, bool bulk,
            std::uint64_t items) {
  BlockingRing ring(capacity, strategy);
  const auto share = static_cast<std::uint32_t>(items / producers);
  std::vector<std::thread> pushing;
  std::vector<std::thread> popping;
  std::vector<Tally> tallies(consumers);
  for (unsigned producer = 0; producer < producers; ++producer) {
    pushing.emplace_back([&ring, producer, share, bulk] {
      Groups groups{bulk};
      for (std::uint32_t position = 0; position < share;) {
        auto group = groups.next();
        group = group.first(std::min<std::size_t>(group.size(), share - position));
        std::iota(group.begin(), group.end(), (producer << 29) | position);
        ring.push(group);
        position += static_cast<std::uint32_t>(group.size());
      }
    });
  }
  for (Tally& tally : tallies) {
    popping.emplace_back([&ring, &tally, bulk] {
      Tally mine;
      Groups groups{bulk};
      for (auto group = groups.next(); const std::uint32_t popped = ring.pop(group); group = groups.next()) {
        std::for_each_n(group.begin(), popped, [&](std::uint32_t item) { mine.add(item); });
      }
      ring.alert_after_last();
      tally = mine;
    });
  }
  for (std::thread& thread : pushing) {
    thread.join();
  }
  ring.close();
  for (std::thread& thread : popping) {
    thread.join();
  }
  Tally expected;
  for (unsigned producer = 0; producer < producers; ++producer) {
    for (std::uint32_t position = 0; position < share; ++position) {
      expected.add((producer << 29) | position);
    }
  }
  std::uint64_t count = 0;
  std::uint64_t checksum = 0;
  for (const Tally& tally : tallies) {
    EXPECT_TRUE(tally.ordered);
    count += tally.count;
    checksum += tally.checksum;
  }
  EXPECT_EQ(count, expected.count);
  EXPECT_EQ(checksum, expected.checksum);
}

// Producers, consumers, capacity, spin before sleeping, several items per call.
using Shape = std::tuple<unsigned, unsigned, std::uint32_t, bool, bool>;

class RingStress : public testing::TestWithParam<Shape> {};

TEST_P(RingStress, nothing_is_lost_doubled_or_reordered) {
  const auto [producers, consumers, capacity, spin, bulk] = GetParam();
  const WaitStrategy strategy = spin ? WaitStrategy::spin_then_sleep() : WaitStrategy::sleep();
  stress(producers, consumers, capacity, strategy, bulk, stress_items() / 72);
}

std::string name_of(const testing::TestParamInfo<Shape>& info) {
  const auto [producers, consumers, capacity, spin, bulk] = info.param;
  return std::to_string(producers) + "_to_" + std::to_string(consumers) + "_capacity_" + std::to_string(capacity) +
         (spin ? "_spin" : "_sleep") + (bulk ? "_bulk" : "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, RingStress,
                         testing::Combine(testing::Values(1U, 2U, 4U), testing::Values(1U, 2U, 4U),
                                          testing::Values(4U, 32U), testing::Bool(), testing::Bool()),
                         name_of);

TEST(RingStressOfCapacityOne, nothing_is_lost_doubled_or_reordered) {
  stress(1, 1, 1, WaitStrategy::spin_then_sleep(), false, stress_items() / 100);
  stress(2, 2, 1, WaitStrategy::spin_then_sleep(), true, stress_items() / 100);
}

}  // namespace
}  // namespace pyecho::test
