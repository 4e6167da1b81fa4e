// An EchoBuffer under several producers, aborts, kept leases, random stops, closes and calls of begin_epoch().
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "../support/run_buffer.hpp"
#include "../support/stress_items.hpp"

namespace pyecho::test {
namespace {

struct EchoCase {
  unsigned producers;
  std::uint32_t threads;
  std::uint32_t capacity;
  std::uint32_t rows;
  bool unique;
  bool long_items = false;
};

class EchoBufferStress : public testing::TestWithParam<EchoCase> {};

// Several producers put items at random, abort some, and the consumer keeps a few leases.
TEST_P(EchoBufferStress, every_committed_item_is_used_exactly) {
  const EchoCase param = GetParam();
  const std::uint64_t items = stress_items() / 100;
  EchoBuffer buffer(
      {.plan = {.capacity = param.capacity, .factor = 3.0, .unique_in_batch = param.unique, .batch_size = param.rows},
       .leaves = param.long_items ? kLongItemLeaves : kItemLeaves,
       .with_info = false,
       .threads = param.threads});
  std::atomic<std::uint64_t> next{0};
  std::vector<std::thread> producers;
  for (unsigned producer = 0; producer < param.producers; ++producer) {
    producers.emplace_back([&, producer] {
      Xoshiro256 random(producer);
      for (std::uint64_t item = next++; item < items;) {
        Reservation reservation{};
        ASSERT_EQ(buffer.input().reserve(reservation, kNever), Outcome::kOk);
        if (random.below(10) == 0) {
          buffer.abort(reservation);
          continue;
        }
        put_item(buffer, reservation, item);
        item = next++;
      }
    });
  }
  std::vector<std::uint32_t> uses(items);
  std::vector<Lease> kept(3);
  std::thread consumer([&] {
    std::uint64_t batches = 0;
    for (Lease lease; buffer.acquire(lease, kNever) == Outcome::kOk; ++batches) {
      std::set<std::uint64_t> seen;
      for (const Emission& emission : rows_of(lease)) {
        ++uses.at(emission.item);
        EXPECT_TRUE(seen.insert(emission.item).second || !param.unique);
      }
      kept[batches % kept.size()] = std::move(lease);
    }
  });
  for (std::thread& producer : producers) {
    producer.join();
  }
  buffer.input().close();
  consumer.join();
  EXPECT_EQ(uses, std::vector<std::uint32_t>(items, 3));
}

INSTANTIATE_TEST_SUITE_P(Shapes, EchoBufferStress,
                         testing::Values(EchoCase{1, 1, 1, 8, false}, EchoCase{2, 0, 13, 16, false},
                                         EchoCase{4, 2, 61, 4, false}, EchoCase{4, 4, 4, 1, false},
                                         EchoCase{2, 3, 40, 32, true}, EchoCase{2, 1, 30, 4, false, true},
                                         EchoCase{3, 2, 9, 7, true, true}));

EchoConfig random_config(Xoshiro256& random) {
  const std::uint32_t rows = 1 + random.below(8);
  const bool unique = random.below(3) == 0;
  EchoConfig config{.plan = {.capacity = (unique ? rows : 1) + random.below(20),
                             .factor = 1.0 + 0.5 * random.below(8),
                             .seed = random.next(),
                             .unique_in_batch = unique,
                             .segment_uses = random.below(2) * (1 + random.below(100)),
                             .batch_size = rows},
                    .leaves = random.below(2) == 0 ? kItemLeaves : kLongItemLeaves,
                    .with_info = random.below(2) == 0,
                    .prefetch = 1 + random.below(4),
                    .threads = random.below(4)};
  if (random.below(3) == 0) {
    keep_items(config);
  }
  return config;
}

// Producers, consumer and workers are stopped or closed at random moments, and begin again. The output is a prefix of
// the plan, and the whole plan after a close.
TEST(EchoBufferStop, random_stops_and_closes_end_everything_and_begin_starts_afresh) {
  Xoshiro256 random(11);
  for (std::uint64_t left = stress_items() / 20'000 + 20; left > 0; --left) {
    EchoConfig config = random_config(random);
    config.max_bytes = min_bytes_of(config);
    EchoBuffer buffer(config);
    for (std::uint64_t epoch = 1; epoch < 8; ++epoch) {
      const bool stop = random.below(2) == 0;
      std::atomic<std::uint64_t> items{0};
      std::thread producer([&] {
        Perturb perturb(epoch + left, 4);
        std::array<Reservation, 3> group{};
        for (std::uint32_t count = 0; buffer.input().try_reserve(group, count) != Outcome::kClosed;) {
          if (count == 0 && buffer.input().reserve(group[count++], kNever) != Outcome::kOk) {
            return;
          }
          perturb();
          for (const Reservation& reservation : std::span(group).first(count)) {
            put_item(buffer, reservation, items++);
          }
        }
      });
      Batches batches;
      std::thread consumer([&] {
        Outcome outcome = Outcome::kOk;
        for (Lease lease; (outcome = buffer.acquire(lease, kNever)) == Outcome::kOk;) {
          batches.push_back(rows_of(lease));
        }
        EXPECT_EQ(outcome, stop ? Outcome::kClosed : Outcome::kEnd);
      });
      Perturb perturb(left, 16);
      for (std::uint32_t i = random.below(50); i > 0; --i) {
        perturb();
      }
      stop ? buffer.stop() : buffer.input().close();
      producer.join();
      consumer.join();
      Batches expected = plan_output(config, epoch - 1, {items})[0];
      ASSERT_TRUE(batches.size() <= expected.size() && (stop || batches.size() == expected.size()));
      expected.resize(batches.size());
      ASSERT_EQ(batches, expected);
      ASSERT_EQ(begin_epoch(buffer, epoch, {}), Outcome::kOk);
    }
  }
}

}  // namespace
}  // namespace pyecho::test
