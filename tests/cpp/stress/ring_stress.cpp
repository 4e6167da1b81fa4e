// Rings under real threads: producers x consumers x wait strategies. Nothing is lost, nothing comes
// twice, and each producer's items come in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "../support/stress_items.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/index_ring.hpp"

namespace pyecho::test {
namespace {

// A blocking ring: IndexRing carries, EventCounts wait.
template <Threads kPushing, Threads kPopping>
class BlockingRing {
 public:
  BlockingRing(std::uint32_t capacity, WaitStrategy strategy) : ring_(capacity), strategy_(strategy) {}

  void push(std::uint32_t item) {
    for (;;) {
      const std::uint64_t seen = popped_.read();
      if (ring_.try_push(item) == Outcome::kOk) {
        return pushed_.advance();
      }
      static_cast<void>(popped_.await(seen + 1, kNever, strategy_, [] { return false; }));
    }
  }
  // False when there will be no more.
  bool pop(std::uint32_t& item) {
    for (;;) {
      const std::uint64_t seen = pushed_.read();
      if (ring_.try_pop(item) == Outcome::kOk) {
        popped_.advance();
        return true;
      }
      if (closed_.load_acquire() != 0 && ring_.approx_size() == 0) {
        return false;
      }
      static_cast<void>(pushed_.await(seen + 1, kNever, strategy_,
                                      [this] { return closed_.load_acquire() != 0 && ring_.approx_size() == 0; }));
    }
  }
  void close() {
    closed_.store_release(1);
    pushed_.alert();
  }
  void alert_after_last() { pushed_.alert(); }

 private:
  IndexRing<kPushing, kPopping> ring_;
  WaitStrategy strategy_;
  EventCount pushed_;
  EventCount popped_;
  Atomic<std::uint32_t> closed_;
};

// What one consumer saw. The number of an item is producer * 2^29 + its position.
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

template <Threads kPushing, Threads kPopping>
void stress(unsigned producers, unsigned consumers, std::uint32_t capacity, WaitStrategy strategy,
            std::uint64_t items) {
  BlockingRing<kPushing, kPopping> ring(capacity, strategy);
  const auto share = static_cast<std::uint32_t>(items / producers);
  std::vector<std::thread> pushing;
  std::vector<std::thread> popping;
  std::vector<Tally> tallies(consumers);
  for (unsigned producer = 0; producer < producers; ++producer) {
    pushing.emplace_back([&ring, producer, share] {
      for (std::uint32_t position = 0; position < share; ++position) {
        ring.push((producer << 29) | position);
      }
    });
  }
  for (Tally& tally : tallies) {
    popping.emplace_back([&ring, &tally] {
      Tally mine;
      for (std::uint32_t item = 0; ring.pop(item);) {
        mine.add(item);
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

using Shape = std::tuple<unsigned, unsigned, std::uint32_t, bool>;  // last: spin before sleeping

class RingStress : public testing::TestWithParam<Shape> {
 protected:
  static constexpr std::uint64_t kShapes = 36;
};

TEST_P(RingStress, nothing_is_lost_doubled_or_reordered) {
  const auto [producers, consumers, capacity, spin] = GetParam();
  const WaitStrategy strategy = spin ? WaitStrategy::spin_then_sleep() : WaitStrategy::sleep();
  const std::uint64_t items = stress_items() / kShapes;
  if (producers == 1 && consumers == 1) {
    stress<Threads::kOne, Threads::kOne>(1, 1, capacity, strategy, items);
  } else if (producers == 1) {
    stress<Threads::kOne, Threads::kMany>(1, consumers, capacity, strategy, items);
  } else if (consumers == 1) {
    stress<Threads::kMany, Threads::kOne>(producers, 1, capacity, strategy, items);
  } else {
    stress<Threads::kMany, Threads::kMany>(producers, consumers, capacity, strategy, items);
  }
}

std::string name_of(const testing::TestParamInfo<Shape>& info) {
  const auto [producers, consumers, capacity, spin] = info.param;
  return std::to_string(producers) + "_to_" + std::to_string(consumers) + "_capacity_" + std::to_string(capacity) +
         (spin ? "_spin" : "_sleep");
}

INSTANTIATE_TEST_SUITE_P(Shapes, RingStress,
                         testing::Combine(testing::Values(1U, 2U, 4U), testing::Values(1U, 2U, 4U),
                                          testing::Values(4U, 1024U), testing::Bool()),
                         name_of);

// The rings that take several threads also serve one.
TEST(RingStressOneThreadASide, rings_for_many_serve_one) {
  stress<Threads::kMany, Threads::kMany>(1, 1, 1, WaitStrategy::spin_then_sleep(), stress_items() / 100);
}

}  // namespace
}  // namespace pyecho::test
