// SlotPool under several producers and releasing threads: every item once, in the order of tickets, and no slot is lost.
#include <gtest/gtest.h>

#include <array>
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
  std::uint32_t announce_group;
  unsigned producers;
  unsigned releasers;          // 0: the planner releases what it takes
  std::uint32_t take_at_once;  // items the planning side asks for
  bool marks;                  // some reservations are aborted, some end a pass
};

class SlotPoolStress : public testing::TestWithParam<PoolCase> {};

TEST_P(SlotPoolStress, items_arrive_once_and_in_ticket_order) {
  const PoolCase param = GetParam();
  SlotPool pool(param.slots, param.announce_group);
  const std::uint64_t items = stress_items() / 20 / param.producers;
  std::vector<std::uint64_t> payload(param.slots);
  std::vector<std::uint64_t> aborted(param.producers);
  std::vector<std::uint64_t> pass_ends(param.producers);
  std::vector<std::thread> producers;
  for (unsigned producer = 0; producer < param.producers; ++producer) {
    producers.emplace_back([&, producer] {
      Xoshiro256 random(producer);
      std::array<Reservation, 5> group{};
      for (std::uint64_t item = 0; item < items;) {
        std::uint32_t count = 0;
        const auto wanted = std::span(group).first(1 + random.below(5));
        if (random.below(2) == 0 || pool.try_reserve(wanted, count) == Outcome::kFull) {
          ASSERT_EQ(pool.reserve(group[0], kNever), Outcome::kOk);
          count = 1;
        }
        item += count;
        for (const Reservation& reservation : std::span(group).first(count)) {
          payload[reservation.slot] = reservation.ticket;
        }
        if (param.marks && random.below(4) == 0) {
          pool.abort(group[--count]);
          ++aborted[producer];
        }
        if (param.marks && count > 0 && random.below(8) == 0) {
          pool.end_pass(group[--count]);
          ++pass_ends[producer];
        }
        pool.commit(std::span(group).first(count));
      }
    });
  }
  IndexRing<> spent(param.slots);
  EventCount spending;
  std::atomic<bool> done{false};
  std::vector<std::thread> releasers;
  for (unsigned releaser = 0; releaser < param.releasers; ++releaser) {
    releasers.emplace_back([&] {
      std::array<std::uint32_t, 3> slots{};
      for (;;) {
        const std::uint64_t seen = spending.read();
        if (const std::uint32_t count = spent.try_pop(slots); count > 0) {
          pool.release(std::span(slots).first(count));
          continue;
        }
        pool.announce_released();
        if (done) {
          return;
        }
        static_cast<void>(
            spending.await(seen + 1, kNever, WaitStrategy::spin_then_sleep(), [&] { return done.load(); }));
      }
    });
  }
  std::uint64_t taken = 0;
  std::uint64_t passes = 0;
  std::thread planner([&] {
    std::uint64_t next_ticket = 0;
    for (std::span<const std::uint32_t> slots;;) {
      switch (pool.take(slots)) {
        case SlotPool::Taken::kEnd:
          return;
        case SlotPool::Taken::kPassEnd:
          ++passes;
          break;
        case SlotPool::Taken::kNothing:
          pool.announce_released();
          static_cast<void>(pool.await_items(param.take_at_once, kNever));
          break;
        case SlotPool::Taken::kItems:
          for (const std::uint32_t slot : slots) {
            ASSERT_GE(payload[slot], next_ticket);
            next_ticket = payload[slot] + 1;
          }
          taken += slots.size();
          if (param.releasers == 0) {
            pool.release(slots);
          } else {
            for (std::span rest = slots; !rest.empty(); rest = rest.subspan(spent.try_push(rest))) {
            }
            spending.advance();
          }
      }
    }
  });
  std::uint64_t expected = 0;
  for (unsigned producer = 0; producer < param.producers; ++producer) {
    producers[producer].join();
    expected -= aborted[producer] + pass_ends[producer];
  }
  pool.close();
  planner.join();
  done = true;
  spending.alert();
  for (std::thread& releaser : releasers) {
    releaser.join();
  }
  for (const std::uint64_t count : pass_ends) {
    passes -= count;
  }
  EXPECT_EQ(passes, 0U);
  EXPECT_EQ(pool.committed(), taken);
  EXPECT_GE(taken, items * param.producers + expected);  // a group may have been longer than what was left
  pool.reset();                                          // throws if a ticket was lost
  std::uint32_t free = 0;
  for (Reservation reservation{}; pool.try_reserve(reservation) == Outcome::kOk; ++free) {
  }
  EXPECT_EQ(free, param.slots);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SlotPoolStress,
                         testing::Values(PoolCase{1, 1, 2, 0, 1, false}, PoolCase{2, 1, 4, 1, 2, true},
                                         PoolCase{4, 2, 4, 3, 3, false}, PoolCase{8, 1, 4, 0, 1, true},
                                         PoolCase{16, 8, 4, 3, 100, true}, PoolCase{64, 20, 1, 2, 16, false}));

// A pool that is closed or stopped at random moments wakes everyone, and bears to be reset.
TEST(SlotPoolStop, random_stops_end_every_wait_and_the_pool_can_be_used_again) {
  Xoshiro256 random(7);
  const std::uint64_t rounds = stress_items() / 20'000 + 20;
  SlotPool pool(3, 2);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::vector<std::thread> threads;
    for (int producer = 0; producer < 3; ++producer) {
      threads.emplace_back([&] {
        std::array<Reservation, 2> group{};
        for (std::uint32_t count = 0;;) {
          Outcome outcome = pool.try_reserve(group, count);
          if (outcome == Outcome::kFull) {
            outcome = pool.reserve(group[0], kNever);
            count = 1;
          }
          if (outcome != Outcome::kOk) {
            return;
          }
          pool.commit(std::span(group).first(count));
        }
      });
    }
    threads.emplace_back([&] {
      for (std::span<const std::uint32_t> slots; !pool.stopped();) {
        const SlotPool::Taken taken = pool.take(slots);
        if (taken == SlotPool::Taken::kEnd) {
          return;
        }
        if (taken == SlotPool::Taken::kItems) {
          pool.release(slots);
        } else {
          pool.announce_released();
          static_cast<void>(pool.await_items(2, kNever));
        }
      }
    });
    Perturb perturb(round, 16);
    for (std::uint32_t i = random.below(20); i > 0; --i) {
      perturb();
    }
    round % 2 == 0 ? pool.stop() : pool.close();
    for (std::thread& thread : threads) {
      thread.join();
    }
    pool.reset();
  }
}

}  // namespace
}  // namespace pyecho::test
