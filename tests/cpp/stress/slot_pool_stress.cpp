// SlotPool under several producers: every item once, in the order of tickets, and no slot is lost.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "../support/stress_items.hpp"
#include "core/plan/random.hpp"
#include "core/stage/slot_pool.hpp"

namespace pyecho::test {
namespace {

struct PoolCase {
  std::uint32_t slots;
  std::uint32_t announce_group;
  unsigned producers;
  std::uint32_t take_at_once;  // items that the planning side waits for
  bool marks;                  // some reservations are aborted, some end a pass
};

class SlotPoolStress : public testing::TestWithParam<PoolCase> {};

TEST_P(SlotPoolStress, items_arrive_once_and_in_ticket_order) {
  const PoolCase param = GetParam();
  SlotPool pool(param.slots, 4 * param.announce_group);
  const std::uint64_t items = stress_items() / 20 / param.producers;
  std::vector<std::uint64_t> payload(param.slots);
  std::atomic<std::uint64_t> committed{0};
  std::atomic<std::uint64_t> pass_ends{0};
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
        }
        if (param.marks && count > 0 && random.below(8) == 0) {
          pool.end_pass(group[--count]);
          ++pass_ends;
        }
        pool.commit(std::span(group).first(count));
        committed += count;
      }
    });
  }
  std::uint64_t taken = 0;
  std::uint64_t passes = 0;
  std::thread planner([&] {
    Plan plan({.capacity = 1, .slots = param.slots, .factor = 1.0});  // emits every item once, in order
    std::uint64_t next_ticket = 0;
    std::array<Use, 16> uses{};
    while (!plan.finished()) {
      std::uint32_t drawn = 0;
      const Outcome outcome = plan.draw(uses, drawn);
      for (const Use& use : std::span(uses).first(drawn)) {
        ASSERT_GE(payload[use.slot], next_ticket);
        next_ticket = payload[use.slot] + 1;
        pool.release(std::span(&use.slot, 1));
        ++taken;
      }
      if (outcome == Outcome::kEnd && drawn == 0) {
        plan.next_iteration();
        ++passes;
      } else if (outcome == Outcome::kEmpty && !pool.feed(plan)) {
        pool.announce_released();
        static_cast<void>(pool.await_items(param.take_at_once, kNever));
      }
    }
  });
  for (std::thread& producer : producers) {
    producer.join();
  }
  pool.close();
  planner.join();
  EXPECT_EQ(taken, committed);
  EXPECT_EQ(pool.committed(), committed);
  EXPECT_EQ(passes, pass_ends + 1);
  pool.reset();  // throws if a ticket was lost
  std::uint32_t free = 0;
  for (Reservation reservation{}; pool.try_reserve(reservation) == Outcome::kOk; ++free) {
  }
  EXPECT_EQ(free, param.slots);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SlotPoolStress,
                         testing::Values(PoolCase{1, 1, 2, 1, false}, PoolCase{2, 1, 4, 2, true},
                                         PoolCase{4, 2, 4, 3, false}, PoolCase{8, 1, 4, 1, true},
                                         PoolCase{16, 8, 4, 100, true}, PoolCase{64, 20, 1, 16, false}));

}  // namespace
}  // namespace pyecho::test
