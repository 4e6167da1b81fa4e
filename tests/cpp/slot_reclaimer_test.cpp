#include "core/memory/slot_reclaimer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "core/plan/random.hpp"
#include "support/perturb.hpp"

namespace pyecho::test {
namespace {

using Slots = std::vector<std::uint32_t>;

class SlotReclaimerTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kSlots = 12;
  static constexpr std::uint32_t kBatches = 3;

  SlotReclaimerTest() : pool_(kSlots, 1), spent_(pool_, kBatches, 4) { static_cast<void>(released()); }

  // The slots given back since the last call, which are in use again.
  std::set<std::uint32_t> released() {
    std::set<std::uint32_t> slots;
    for (Reservation reservation{}; pool_.try_reserve(reservation) == Outcome::kOk;) {
      EXPECT_TRUE(slots.insert(reservation.slot).second);
    }
    return slots;
  }

  SlotPool pool_;
  SlotReclaimer spent_;
};

using Released = std::set<std::uint32_t>;

TEST_F(SlotReclaimerTest, the_front_gives_back_at_once) {
  spent_.copied(0, Slots{5}, false);
  EXPECT_EQ(released(), (Released{5}));
  spent_.copied(0, Slots{2, 7}, true);
  EXPECT_EQ(released(), (Released{2, 7}));
  spent_.copied(1, Slots{1}, false);
  EXPECT_EQ(released(), (Released{1}));
}

TEST_F(SlotReclaimerTest, later_batches_wait_for_the_front) {
  spent_.copied(2, Slots{4}, true);
  spent_.copied(1, Slots{1}, false);
  spent_.copied(1, Slots{3}, false);
  spent_.copied(0, Slots{0}, false);
  EXPECT_EQ(released(), (Released{0}));
  spent_.copied(0, {}, true);
  EXPECT_EQ(released(), (Released{1, 3}));  // batch 1 is the front, and goes on
  spent_.copied(1, Slots{6}, false);
  EXPECT_EQ(released(), (Released{6}));
  spent_.copied(1, Slots{8}, true);
  EXPECT_EQ(released(), (Released{4, 8}));
  spent_.copied(3, Slots{9}, false);
  EXPECT_EQ(released(), (Released{9}));
}

TEST_F(SlotReclaimerTest, every_batch_may_be_whole_before_the_front_is) {
  for (std::uint64_t round = 0; round < 4; ++round) {
    const std::uint64_t first = round * kBatches;
    spent_.copied(first + 1, Slots{1}, true);
    spent_.copied(first + 2, Slots{2}, true);
    EXPECT_EQ(released(), Released{});
    spent_.copied(first, Slots{0}, true);
    EXPECT_EQ(released(), (Released{0, 1, 2}));
  }
}

// Threads copy batches of random uses of slots whose content changes when they come back: nobody may see a slot change
// under a use that was planned before its release.
TEST(SlotReclaimer, no_slot_comes_back_before_all_of_its_copies_are_made) {
  constexpr std::uint32_t kSlots = 8;
  constexpr std::uint32_t kThreads = 3;
  constexpr std::uint64_t kBatches = 6000;
  SlotPool pool(kSlots, 1);
  SlotReclaimer spent(pool, kThreads, 4);
  std::vector<std::uint64_t> content(kSlots);  // plain: a slot that came back too early is a race
  std::mutex turn;
  std::uint64_t next_batch = 0;
  std::vector<Reservation> held;  // slots in use, guarded by turn
  Xoshiro256 random(3);
  std::atomic<std::uint64_t> wrong{0};
  std::barrier<> round(kThreads);
  const auto work = [&](std::uint64_t seed) {
    Perturb perturb(seed, 8);
    for (;;) {
      struct Copy {
        std::uint32_t slot;
        std::uint64_t expected;
        bool last;
      };
      std::vector<Copy> plan;
      std::uint64_t number = 0;
      {
        const std::scoped_lock lock(turn);
        if (next_batch == kBatches) {
          return;
        }
        number = next_batch++;
        for (int row = 0; row < 4; ++row) {
          Reservation reservation{};
          while (held.size() < kSlots / 2 && pool.try_reserve(reservation) == Outcome::kOk) {
            content[reservation.slot] = reservation.ticket;
            held.push_back(reservation);
          }
          if (held.empty()) {
            continue;
          }
          const std::uint32_t chosen = random.below(static_cast<std::uint32_t>(held.size()));
          const bool last = random.below(3) == 0;
          plan.push_back({held[chosen].slot, held[chosen].ticket, last});
          if (last) {
            held.erase(held.begin() + chosen);
          }
        }
      }
      for (const Copy& copy : plan) {
        perturb();
        wrong += content[copy.slot] == copy.expected ? 0 : 1;
        if (copy.last) {
          spent.copied(number, std::span(&copy.slot, 1), false);
        }
      }
      spent.copied(number, {}, true);
      round.arrive_and_wait();  // no more than kThreads batches at a time
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(work, thread);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0U);
  Reservation reservation{};
  for (std::size_t slot = held.size(); slot < kSlots; ++slot) {
    EXPECT_EQ(pool.try_reserve(reservation), Outcome::kOk);  // none was lost
  }
}

}  // namespace
}  // namespace pyecho::test
