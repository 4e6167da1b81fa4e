// SlotPool under several producers: every item once, in the order of tickets, and no slot is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../support/perturb.hpp"
#include "../support/stress_items.hpp"
#include "core/memory/slot_pool.hpp"

namespace pyecho::test {
namespace {

struct PoolCase {
  std::uint32_t slots;
  std::uint32_t wake_group;
  unsigned producers;
  std::uint32_t take_at_once;  // items the planning side asks for
  bool aborts;
};

class SlotPoolStress : public testing::TestWithParam<PoolCase> {};

TEST_P(SlotPoolStress, items_arrive_once_and_in_ticket_order) {
  const PoolCase param = GetParam();
  SlotPool pool(param.slots, param.wake_group);
  const std::uint64_t items = stress_items() / 20 / param.producers;
  std::vector<std::uint64_t> payload(param.slots);
  std::vector<std::uint64_t> aborted(param.producers);
  std::vector<std::thread> producers;
  for (unsigned producer = 0; producer < param.producers; ++producer) {
    producers.emplace_back([&, producer] {
      Xoshiro256 random(producer);
      for (std::uint64_t item = 0; item < items; ++item) {
        Reservation reservation{};
        ASSERT_EQ(pool.reserve(reservation, kNever), Outcome::kOk);
        payload[reservation.slot] = reservation.ticket;
        if (param.aborts && random.below(4) == 0) {
          ++aborted[producer];
          pool.abort(reservation);
        } else {
          pool.commit(reservation);
        }
      }
    });
  }
  std::uint64_t taken = 0;
  std::uint64_t last_ticket = 0;
  std::thread planner([&] {
    for (;;) {
      std::uint32_t slot = 0;
      const Outcome outcome = pool.try_take(slot);
      if (outcome == Outcome::kEnd) {
        return;
      }
      if (outcome == Outcome::kEmpty) {
        static_cast<void>(pool.await_items(param.take_at_once, kNever));
        continue;
      }
      ASSERT_TRUE(taken == 0 || payload[slot] > last_ticket);
      last_ticket = payload[slot];
      ++taken;
      pool.release(slot);
      pool.announce_released(1);
    }
  });
  for (std::thread& producer : producers) {
    producer.join();
  }
  pool.close();
  planner.join();
  std::uint64_t expected = items * param.producers;
  for (const std::uint64_t count : aborted) {
    expected -= count;
  }
  EXPECT_EQ(taken, expected);
  EXPECT_EQ(pool.committed(), expected);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SlotPoolStress,
                         testing::Values(PoolCase{1, 1, 2, 1, false}, PoolCase{2, 1, 4, 2, true},
                                         PoolCase{4, 2, 4, 3, false}, PoolCase{8, 1, 4, 1, false},
                                         PoolCase{16, 8, 4, 100, true}, PoolCase{64, 20, 1, 16, false}));

// Slots come back through several threads, and the planning side keeps as many as it may: what it
// can free without further input is just what sleeping producers wait for.
TEST(SlotPoolRelease, several_threads_release_and_nobody_sleeps_on) {
  constexpr std::uint32_t kResident = 8;
  constexpr std::uint32_t kGroup = 8;
  SlotPool pool(kResident + kGroup, kGroup);
  IndexRing<> spent(64);
  EventCount spending;
  std::atomic<bool> done{false};
  const std::uint64_t items = stress_items() / 10;
  std::vector<std::thread> producers;
  for (int producer = 0; producer < 2; ++producer) {
    producers.emplace_back([&] {
      for (std::uint64_t item = 0; item < items / 2; ++item) {
        Reservation reservation{};
        ASSERT_EQ(pool.reserve(reservation, kNever), Outcome::kOk);
        pool.commit(reservation);
      }
    });
  }
  std::vector<std::thread> releasers;
  for (int releaser = 0; releaser < 3; ++releaser) {
    releasers.emplace_back([&] {
      for (;;) {
        const std::uint64_t seen = spending.read();
        std::uint32_t slot = 0;
        if (spent.try_pop(slot) == Outcome::kOk) {
          pool.release(slot);
          pool.announce_released(1);
        } else if (done) {
          return;
        } else {
          static_cast<void>(
              spending.await(seen + 1, kNever, WaitStrategy::spin_then_sleep(), [&] { return done.load(); }));
        }
      }
    });
  }
  std::uint64_t taken = 0;
  std::thread planner([&] {
    std::vector<std::uint32_t> resident;
    for (;;) {
      std::uint32_t slot = 0;
      const Outcome outcome = pool.try_take(slot);
      if (outcome == Outcome::kEnd) {
        return;
      }
      if (outcome == Outcome::kEmpty) {
        static_cast<void>(pool.await_items(1, kNever));
        continue;
      }
      ++taken;
      resident.push_back(slot);
      if (resident.size() == kResident) {
        while (spent.try_push(resident.back()) != Outcome::kOk) {
          std::this_thread::yield();
        }
        spending.advance();
        resident.pop_back();
      }
    }
  });
  for (std::thread& producer : producers) {
    producer.join();
  }
  pool.close();
  planner.join();
  done = true;
  spending.alert();
  for (std::thread& releaser : releasers) {
    releaser.join();
  }
  EXPECT_EQ(taken, items / 2 * 2);
}

// Stopping at random moments wakes everyone.
TEST(SlotPoolStop, random_stops_end_every_wait) {
  Xoshiro256 random(7);
  const std::uint64_t rounds = stress_items() / 20'000 + 20;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SlotPool pool(2, 1);
    std::vector<std::thread> threads;
    for (int producer = 0; producer < 3; ++producer) {
      threads.emplace_back([&] {
        Reservation reservation{};
        while (pool.reserve(reservation, kNever) == Outcome::kOk) {
          pool.commit(reservation);
        }
      });
    }
    threads.emplace_back([&] {
      std::uint32_t slot = 0;
      while (!pool.stopped()) {
        const Outcome outcome = pool.try_take(slot);
        if (outcome == Outcome::kOk) {
          pool.release(slot);
          pool.announce_released(1);
        } else if (outcome == Outcome::kEmpty) {
          static_cast<void>(pool.await_items(2, kNever));
        }
      }
    });
    Perturb perturb(round, 16);
    for (std::uint32_t i = random.below(20); i > 0; --i) {
      perturb();
    }
    pool.stop();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

}  // namespace
}  // namespace pyecho::test
