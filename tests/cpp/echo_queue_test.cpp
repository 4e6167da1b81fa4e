#include "core/stage/echo_queue.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "support/drive_planner.hpp"
#include "support/perturb.hpp"

namespace pyecho::test {
namespace {

using namespace std::chrono_literals;

// All emissions of an epoch; the items are their numbers.
std::vector<Emission> run_queue(const EchoQueueConfig& config, std::uint64_t items, std::uint32_t delays = 0) {
  EchoQueue queue(config);
  std::vector<std::uint64_t> item_in(queue.slots());
  std::thread producer([&] {
    Perturb perturb(1, delays);
    for (std::uint64_t item = 0; item < items; ++item) {
      Reservation reservation{};
      ASSERT_EQ(queue.reserve(reservation, kNever), Outcome::kOk);
      item_in[reservation.slot] = item;
      perturb();
      queue.commit(reservation);
    }
    queue.close();
  });
  std::vector<Emission> emissions;
  Perturb perturb(2, delays);
  Use use{};
  while (queue.next(use, kNever) == Outcome::kOk) {
    EXPECT_EQ(item_in[use.slot], use.source_index);
    emissions.push_back({use.source_index, use.ordinal});
    perturb();
    if (use.last) {
      queue.release(use.slot);
    }
  }
  EXPECT_EQ(queue.next(use, kNever), Outcome::kEnd);
  EXPECT_EQ(queue.try_next(use), Outcome::kEnd);
  producer.join();
  EXPECT_EQ(queue.stats().fresh, items);
  EXPECT_EQ(queue.stats().emitted, emissions.size());
  return emissions;
}

TEST(EchoQueue, emits_exactly_the_plan_whatever_the_timing) {
  for (const std::uint32_t capacity : {1U, 2U, 9U}) {
    for (const double factor : {1.0, 2.5, 4.0}) {
      for (const std::uint32_t prefetch : {1U, 3U}) {
        for (const std::uint64_t items : {0ULL, 1ULL, 70ULL}) {
          const PlannerConfig plan{.capacity = capacity, .slots = capacity, .factor = factor, .seed = 5, .epoch = 6};
          std::vector<Emission> expected;
          for (const auto& batch : drive_planner(plan, items, 100)) {
            expected.insert(expected.end(), batch.begin(), batch.end());
          }
          const EchoQueueConfig config{
              .capacity = capacity, .factor = factor, .seed = 5, .epoch = 6, .prefetch = prefetch};
          ASSERT_EQ(run_queue(config, items), expected);
          ASSERT_EQ(run_queue(config, items, 8), expected);
        }
      }
    }
  }
}

TEST(EchoQueue, one_thread_can_play_both_sides) {
  EchoQueue queue({.capacity = 1, .factor = 3.0, .prefetch = 1});
  Use use{};
  EXPECT_EQ(queue.try_next(use), Outcome::kEmpty);
  EXPECT_EQ(queue.next(use, Clock::now() + 2ms), Outcome::kTimeout);
  Reservation reservation{};
  ASSERT_EQ(queue.try_reserve(reservation), Outcome::kOk);
  queue.commit(reservation);
  for (std::uint32_t ordinal = 0; ordinal < 3; ++ordinal) {
    ASSERT_EQ(queue.try_next(use), Outcome::kOk);
    EXPECT_EQ(use.ordinal, ordinal);
    EXPECT_EQ(use.slot, reservation.slot);
  }
  EXPECT_TRUE(use.last);
  EXPECT_EQ(queue.try_next(use), Outcome::kEmpty);
  EXPECT_EQ(queue.slots(), 2U);
}

TEST(EchoQueue, a_kept_slot_is_not_reused) {
  EchoQueue queue({.capacity = 1, .factor = 1.0, .prefetch = 1});
  std::vector<std::uint32_t> kept;
  for (int i = 0; i < 2; ++i) {
    Reservation reservation{};
    ASSERT_EQ(queue.try_reserve(reservation), Outcome::kOk);
    queue.commit(reservation);
    Use use{};
    ASSERT_EQ(queue.try_next(use), Outcome::kOk);
    kept.push_back(use.slot);
  }
  Reservation reservation{};
  EXPECT_EQ(queue.try_reserve(reservation), Outcome::kFull);
  queue.release(kept[0]);
  ASSERT_EQ(queue.try_reserve(reservation), Outcome::kOk);
  EXPECT_EQ(reservation.slot, kept[0]);
}

TEST(EchoQueue, stop_ends_both_waits) {
  for (const bool starve : {true, false}) {
    EchoQueue queue({.capacity = 2, .prefetch = 1});
    std::thread waiting([&] {
      if (starve) {
        Use use{};
        EXPECT_EQ(queue.next(use, kNever), Outcome::kClosed);
      } else {
        Reservation reservation{};
        while (queue.reserve(reservation, kNever) == Outcome::kOk) {
          queue.commit(reservation);
        }
      }
    });
    std::this_thread::yield();
    queue.stop();
    waiting.join();
    Use use{};
    EXPECT_EQ(queue.try_next(use), Outcome::kClosed);
    Reservation reservation{};
    EXPECT_EQ(queue.try_reserve(reservation), Outcome::kClosed);
  }
}

}  // namespace
}  // namespace pyecho::test
