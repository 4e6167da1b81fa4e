#include "core/memory/slot_pool.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace pyecho {
namespace {

using namespace std::chrono_literals;

Deadline soon() { return Clock::now() + 2ms; }

Reservation reserve(SlotPool& pool) {
  Reservation reservation{};
  EXPECT_EQ(pool.try_reserve(reservation), Outcome::kOk);
  return reservation;
}

TEST(SlotPool, all_slots_can_be_reserved_and_then_it_is_full) {
  for (const std::uint32_t slots : {1U, 2U, 3U, 8U}) {
    SlotPool pool(slots, 1);
    std::set<std::uint32_t> seen;
    for (std::uint32_t i = 0; i < slots; ++i) {
      const Reservation reservation = reserve(pool);
      EXPECT_EQ(reservation.ticket, i);
      EXPECT_LT(reservation.slot, slots);
      seen.insert(reservation.slot);
    }
    EXPECT_EQ(seen.size(), slots);
    Reservation reservation{};
    EXPECT_EQ(pool.try_reserve(reservation), Outcome::kFull);
    EXPECT_EQ(pool.reserve(reservation, soon()), Outcome::kTimeout);
  }
}

TEST(SlotPool, slots_are_taken_in_the_order_of_their_reservations) {
  SlotPool pool(3, 1);
  const Reservation first = reserve(pool);
  const Reservation second = reserve(pool);
  const Reservation third = reserve(pool);
  std::uint32_t slot = 0;
  pool.commit(third);
  pool.commit(second);
  EXPECT_EQ(pool.try_take(slot), Outcome::kEmpty);
  pool.commit(first);
  for (const Reservation& reservation : {first, second, third}) {
    ASSERT_EQ(pool.try_take(slot), Outcome::kOk);
    EXPECT_EQ(slot, reservation.slot);
  }
  EXPECT_EQ(pool.try_take(slot), Outcome::kEmpty);
  EXPECT_EQ(pool.committed(), 3U);
}

TEST(SlotPool, an_aborted_slot_is_skipped_and_comes_back) {
  SlotPool pool(2, 1);
  const Reservation first = reserve(pool);
  const Reservation second = reserve(pool);
  pool.abort(first);
  pool.commit(second);
  std::uint32_t slot = 0;
  ASSERT_EQ(pool.try_take(slot), Outcome::kOk);
  EXPECT_EQ(slot, second.slot);
  EXPECT_EQ(pool.committed(), 1U);
  EXPECT_EQ(reserve(pool).slot, first.slot);
}

TEST(SlotPool, a_released_slot_can_be_reserved_again) {
  SlotPool pool(1, 1);
  for (std::uint64_t lap = 0; lap < 20; ++lap) {
    const Reservation reservation = reserve(pool);
    EXPECT_EQ(reservation.ticket, lap);
    pool.commit(reservation);
    std::uint32_t slot = 0;
    ASSERT_EQ(pool.try_take(slot), Outcome::kOk);
    pool.release(slot);
    pool.announce_released(1);
  }
}

TEST(SlotPool, close_ends_reservations_and_then_the_taking) {
  SlotPool pool(2, 1);
  pool.commit(reserve(pool));
  EXPECT_FALSE(pool.closed());
  pool.close();
  pool.close();
  EXPECT_TRUE(pool.closed());
  EXPECT_FALSE(pool.stopped());
  Reservation reservation{};
  EXPECT_EQ(pool.try_reserve(reservation), Outcome::kClosed);
  EXPECT_EQ(pool.reserve(reservation, kNever), Outcome::kClosed);
  std::uint32_t slot = 0;
  EXPECT_EQ(pool.try_take(slot), Outcome::kOk);
  EXPECT_EQ(pool.try_take(slot), Outcome::kEnd);
  EXPECT_EQ(pool.try_take(slot), Outcome::kEnd);
}

TEST(SlotPool, an_outstanding_reservation_may_be_committed_after_close) {
  SlotPool pool(2, 1);
  const Reservation first = reserve(pool);
  const Reservation second = reserve(pool);
  pool.close();
  std::uint32_t slot = 0;
  EXPECT_EQ(pool.try_take(slot), Outcome::kEmpty);
  EXPECT_EQ(pool.await_items(1, soon()), Outcome::kTimeout);
  pool.commit(first);
  EXPECT_EQ(pool.try_take(slot), Outcome::kOk);
  EXPECT_EQ(pool.try_take(slot), Outcome::kEmpty);
  pool.abort(second);
  EXPECT_EQ(pool.try_take(slot), Outcome::kEnd);
}

TEST(SlotPool, an_empty_closed_pool_is_at_its_end) {
  SlotPool pool(2, 1);
  pool.close();
  std::uint32_t slot = 0;
  EXPECT_EQ(pool.try_take(slot), Outcome::kEnd);
}

TEST(SlotPool, stop_closes_and_ends_every_wait) {
  SlotPool pool(1, 1);
  const Reservation kept = reserve(pool);
  std::thread producer([&] {
    Reservation reservation{};
    EXPECT_EQ(pool.reserve(reservation, kNever), Outcome::kClosed);
  });
  std::thread planner([&] {
    std::uint32_t slot = 0;
    while (!pool.stopped()) {
      ASSERT_EQ(pool.try_take(slot), Outcome::kEmpty);
      static_cast<void>(pool.await_items(1, kNever));
    }
  });
  std::this_thread::yield();
  pool.stop();
  producer.join();
  planner.join();
  EXPECT_TRUE(pool.closed());
  pool.abort(kept);
}

TEST(SlotPool, a_sleeping_producer_is_woken_by_a_release) {
  SlotPool pool(1, 1);
  pool.commit(reserve(pool));
  std::thread producer([&] {
    Reservation reservation{};
    ASSERT_EQ(pool.reserve(reservation, kNever), Outcome::kOk);
    pool.commit(reservation);
  });
  std::uint32_t slot = 0;
  ASSERT_EQ(pool.try_take(slot), Outcome::kOk);
  pool.release(slot);
  pool.announce_released(1);
  producer.join();
  EXPECT_EQ(pool.try_take(slot), Outcome::kOk);
}

// One thread on both sides of a full pool cannot deadlock as long as it asks with a deadline.
TEST(SlotPool, a_timed_reserve_changes_nothing_when_it_fails) {
  SlotPool pool(1, 1);
  pool.commit(reserve(pool));
  Reservation reservation{99, 99};
  EXPECT_EQ(pool.reserve(reservation, soon()), Outcome::kTimeout);
  EXPECT_EQ(reservation.slot, 99U);
  EXPECT_EQ(reservation.ticket, 99U);
}

// The planning side asks for more items than there are slots left: the producer that sleeps for
// want of a slot makes it look at what there is.
TEST(SlotPool, a_hungry_planner_and_a_sleeping_producer_do_not_deadlock) {
  SlotPool pool(2, 1);
  constexpr int kItems = 2000;
  std::thread producer([&] {
    for (int item = 0; item < kItems; ++item) {
      Reservation reservation{};
      ASSERT_EQ(pool.reserve(reservation, kNever), Outcome::kOk);
      pool.commit(reservation);
    }
    pool.close();
  });
  int taken = 0;
  for (;;) {
    std::uint32_t slot = 0;
    const Outcome outcome = pool.try_take(slot);
    if (outcome == Outcome::kEnd) {
      break;
    }
    if (outcome == Outcome::kEmpty) {
      static_cast<void>(pool.await_items(1000, kNever));
      continue;
    }
    ++taken;
    pool.release(slot);
    pool.announce_released(1);
  }
  producer.join();
  EXPECT_EQ(taken, kItems);
}

TEST(SlotPool, commits_may_be_announced_together) {
  SlotPool pool(4, 1);
  std::thread planner([&] {
    std::uint32_t slot = 0;
    for (int item = 0; item < 3;) {
      if (pool.try_take(slot) == Outcome::kOk) {
        ++item;
      } else {
        static_cast<void>(pool.await_items(static_cast<std::uint64_t>(3 - item), kNever));
      }
    }
  });
  for (int item = 0; item < 3; ++item) {
    pool.commit_quietly(reserve(pool));
  }
  pool.announce_committed(3);
  planner.join();
}

}  // namespace
}  // namespace pyecho
