#include "core/stage/slot_pool.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace pyecho::test {
namespace {

using namespace std::chrono_literals;
using Slots = std::vector<std::uint32_t>;

Deadline soon() { return Clock::now() + 2ms; }

Reservation reserve(SlotPool& pool) {
  Reservation reservation{};
  EXPECT_EQ(pool.try_reserve(reservation), Outcome::kOk);
  return reservation;
}

// Feeds a plan that emits every item once, in order.
struct Planner {
  explicit Planner(SlotPool& of) : pool(of), plan({.capacity = 1, .slots = of.slots(), .factor = 1.0}) {}

  // Returns the items up to `then`: kEnd at the end of a pass or of the input, kEmpty if more are to be committed.
  Slots take(Outcome then) {
    pool.feed(plan);
    Slots all;
    std::array<Use, 1> use{};
    std::uint32_t drawn = 0;
    Outcome outcome = Outcome::kOk;
    while ((outcome = plan.draw(use, drawn)) == Outcome::kOk) {
      all.push_back(use[0].slot);
    }
    EXPECT_EQ(outcome, then);
    if (outcome == Outcome::kEnd) {
      plan.next_iteration();
    }
    return all;
  }

  SlotPool& pool;
  Plan plan;
};

TEST(SlotPool, items_marks_and_aborts_are_taken_in_the_order_of_their_tickets) {
  SlotPool pool(7, 1);
  Planner planner(pool);
  for (std::uint64_t lap = 1; lap <= 300; ++lap) {
    std::vector<Reservation> r(7);
    std::uint32_t count = 0;
    ASSERT_EQ(pool.try_reserve(r, count), Outcome::kOk);
    ASSERT_EQ(count, 7U);
    pool.end_pass(r[4]);
    pool.commit(std::span(r).subspan(5));
    pool.abort(r[1]);
    pool.end_pass(r[3]);
    pool.commit(r[2]);
    EXPECT_EQ(planner.take(Outcome::kEmpty), Slots{});
    pool.commit(r[0]);
    EXPECT_EQ(planner.take(Outcome::kEnd), (Slots{r[0].slot, r[2].slot}));
    EXPECT_EQ(planner.take(Outcome::kEnd), Slots{});
    EXPECT_EQ(planner.take(Outcome::kEmpty), (Slots{r[5].slot, r[6].slot}));
    EXPECT_EQ(pool.committed(), 4 * lap);
    pool.release(Slots{r[5].slot, r[2].slot, r[0].slot, r[6].slot});  // the others are free already
  }
}

TEST(SlotPool, close_refuses_reservations_and_ends_the_taking_after_those_that_are_open) {
  SlotPool pool(2, 1);
  Planner planner(pool);
  const Reservation first = reserve(pool);
  const Reservation second = reserve(pool);
  pool.close();
  pool.close();
  EXPECT_TRUE(pool.closed() && !pool.stopped());
  Reservation refused{9, 9};
  EXPECT_EQ(pool.try_reserve(refused), Outcome::kClosed);
  EXPECT_EQ(pool.reserve(refused, kNever), Outcome::kClosed);
  EXPECT_EQ(refused.slot, 9U);
  EXPECT_EQ(planner.take(Outcome::kEmpty), Slots{});
  EXPECT_EQ(pool.await_items(1, soon()), Outcome::kTimeout);
  pool.commit(first);
  EXPECT_EQ(planner.take(Outcome::kEmpty), Slots{first.slot});
  pool.abort(second);
  EXPECT_EQ(planner.take(Outcome::kEnd), Slots{});
  EXPECT_TRUE(planner.plan.finished());
  EXPECT_FALSE(pool.feed(planner.plan));
}

// The planner waits for more items than will be committed.
TEST(SlotPool, the_planner_waits_for_so_many_items_or_until_there_may_be_news) {
  enum class News { kItems, kPassEnd, kClose, kStop, kProducerWithoutSlot };
  for (const News news : {News::kItems, News::kPassEnd, News::kClose, News::kStop, News::kProducerWithoutSlot}) {
    for (const bool late : {false, true}) {
      SlotPool pool(4, 1);
      Planner planner(pool);
      EXPECT_EQ(planner.take(Outcome::kEmpty), Slots{});
      pool.commit(reserve(pool));
      EXPECT_EQ(pool.await_items(3, soon()), Outcome::kTimeout);
      std::thread producer([&] {
        std::this_thread::sleep_for(late ? 2ms : 0ms);
        Reservation reservation{};
        if (news == News::kItems || news == News::kProducerWithoutSlot) {
          pool.commit(reserve(pool));
          pool.commit(reserve(pool));
        }
        if (news == News::kPassEnd) {
          pool.end_pass(reserve(pool));
        } else if (news == News::kClose) {
          pool.close();
        } else if (news == News::kStop) {
          pool.stop();
        } else if (news == News::kProducerWithoutSlot) {
          pool.commit(reserve(pool));
          EXPECT_EQ(pool.reserve(reservation, kNever), Outcome::kClosed);
        }
      });
      const std::uint64_t items = news == News::kItems ? 3 : 100;
      EXPECT_NE(pool.await_items(items, Clock::now() + 20s), Outcome::kTimeout) << static_cast<int>(news);
      pool.stop();
      producer.join();
    }
  }
}

TEST(SlotPool, a_producer_is_woken_by_a_group_of_slots_and_by_hand) {
  SlotPool pool(8, 12);  // in groups of 3
  std::vector<Reservation> all(8);
  std::uint32_t count = 0;
  ASSERT_EQ(pool.try_reserve(all, count), Outcome::kOk);
  for (const bool by_hand : {false, true}) {
    std::thread producer([&] {
      Reservation reservation{};
      ASSERT_EQ(pool.reserve(reservation, kNever), Outcome::kOk);
    });
    std::this_thread::sleep_for(2ms);
    pool.release(Slots{all[by_hand ? 3 : 0].slot});
    if (by_hand) {
      pool.announce_released();
    } else {
      pool.release(Slots{all[1].slot, all[2].slot});
    }
    producer.join();
    Reservation rest{};
    while (pool.try_reserve(rest) == Outcome::kOk) {
    }
  }
}

TEST(SlotPool, a_producer_without_a_slot_is_told_of_a_halt) {
  SlotPool pool(1, 1);
  const Reservation only = reserve(pool);
  pool.set_halted(true);
  Reservation reservation{};
  EXPECT_EQ(pool.reserve(reservation, kNever), Outcome::kHalted);
  pool.set_halted(false);
  pool.await_resumed(kNever);
  pool.abort(only);
}

TEST(SlotPool, spare_slots_serve_the_items_of_a_state_and_leave_the_cycle_then) {
  SlotPool pool(8, 1, 3);
  std::vector<Reservation> group(8);
  const auto free = [&] {
    std::uint32_t count = 0;
    EXPECT_NE(pool.try_reserve(group, count), Outcome::kClosed);
    for (const Reservation& reservation : std::span(group).first(count)) {
      pool.abort(reservation);
    }
    Plan plan({.slots = 8});
    pool.feed(plan);
    return count;
  };
  EXPECT_EQ(pool.cycle(), 5U);
  EXPECT_EQ(free(), 5U);
  pool.stop();
  pool.reset_halted(Slots{0});  // the others hold items
  pool.set_halted(false);
  EXPECT_EQ(free(), 0U);
  pool.release(Slots{1});
  EXPECT_EQ(free(), 0U);
  pool.release(Slots{2, 3});
  EXPECT_EQ(free(), 1U);
  pool.release(Slots{4, 5, 6, 7});
  EXPECT_EQ(free(), 5U);
  pool.stop();
  pool.reset();
  EXPECT_EQ(free(), 5U);
}

}  // namespace
}  // namespace pyecho::test
