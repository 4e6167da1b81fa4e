// ReorderRing, alone and as SlotPool composes it with a ring of free slots and a ticket counter.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "core/sync/reorder_ring.hpp"
#include "model/atom.hpp"
#include "model/explore.hpp"

namespace pyecho::model {
namespace {

// Two publishers with tickets 0, 2 and 1, 3; thread 2 takes.
struct Publishing {
  ReorderRing<Atom> ring{4};
  std::array<Plain<int>, 4> payload;
  std::vector<std::uint32_t> taken;

  void publish(std::uint32_t ticket) {
    payload[ticket].write(static_cast<int>(ticket) + 10);
    ring.publish(ticket, ticket);
  }
  void take() {
    std::uint32_t index = 0;
    if (ring.try_take(index) == Outcome::kOk) {
      Scheduler::current()->check(payload[index].read() == static_cast<int>(index) + 10, "payload");
      taken.push_back(index);
    }
  }
};

Program publishing() {
  auto state = std::make_shared<Publishing>();
  Program program;
  for (std::uint32_t publisher : {0U, 1U}) {
    program.threads.push_back([state, publisher] {
      state->publish(publisher + 2 * (1 - publisher));  // 2 before 0, but 1 before 3
      state->publish(publisher + 2 * publisher);
    });
  }
  program.threads.push_back([state] {
    for (int attempt = 0; attempt < 4; ++attempt) {
      state->take();
    }
  });
  program.afterwards = [state] {
    for (int attempt = 0; attempt < 4; ++attempt) {
      state->take();
    }
    Scheduler::current()->check(state->taken == std::vector<std::uint32_t>{0, 1, 2, 3}, "order");
  };
  return program;
}

TEST(ReorderRingModel, tickets_come_out_in_order_in_every_interleaving) {
  const Report report = explore_all(publishing, {.preemptions = 3, .stale_reads = 1});
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
}

TEST(ReorderRingModel, a_relaxed_p1_would_race) {
  const Limits limits{.weakened = [](int t, Access a) { return t != 2 && a == Access::kStore; }};
  EXPECT_EQ(explore_all(publishing, limits).first_failure, "data race");
}

TEST(ReorderRingModel, a_relaxed_t1_would_race) {
  const Limits limits{.weakened = [](int t, Access a) { return t == 2 && a == Access::kLoad; }};
  EXPECT_EQ(explore_all(publishing, limits).first_failure, "data race");
}

// The way of a slot through SlotPool: free ring, ticket, filled ring, and back.
struct Rotation {
  static constexpr std::uint32_t kSlots = 2;
  IndexRing<Threads::kMany, Threads::kMany, Atom> free{kSlots};
  ReorderRing<Atom> filled{kSlots};
  Sequence<Atom> tickets;
  std::array<Plain<std::uint64_t>, kSlots> payload;
  std::uint64_t taken = 0;
  bool retry_release;

  explicit Rotation(bool retry) : retry_release(retry) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      release(slot);
    }
  }
  void release(std::uint32_t slot) {
    while (free.try_push(slot) != Outcome::kOk) {
      if (!retry_release || Scheduler::current()->aborted()) {
        return Scheduler::current()->fail("a slot was lost");
      }
      Scheduler::current()->yield();
    }
  }
  void put() {
    std::uint32_t slot = 0;
    if (free.try_pop(slot) == Outcome::kOk) {
      const std::uint64_t ticket = tickets.fetch_add_acq_rel(1);
      payload[slot].write(ticket + 100);
      filled.publish(ticket, slot);  // asserts that this thread sees the cell empty
    }
  }
  void take() {
    std::uint32_t slot = 0;
    if (filled.try_take(slot) == Outcome::kOk) {
      Scheduler::current()->check(payload[slot].read() == taken + 100, "order of tickets");
      ++taken;
      release(slot);
    }
  }
};

Program rotation(int puts, int takes, bool retry_release) {
  auto state = std::make_shared<Rotation>(retry_release);
  Program program;
  for (int producer = 0; producer < 2; ++producer) {
    program.threads.push_back([=] {
      for (int i = 0; i < puts; ++i) {
        state->put();
      }
    });
  }
  program.threads.push_back([=] {
    for (int i = 0; i < takes; ++i) {
      state->take();
    }
  });
  program.afterwards = [state] {
    state->take();
    state->take();
    Scheduler::current()->check(state->taken == state->tickets.load_relaxed(), "all are taken");
    std::uint32_t slot = 0;
    for (std::uint32_t i = 0; i < Rotation::kSlots; ++i) {
      Scheduler::current()->check(state->free.try_pop(slot) == Outcome::kOk, "a slot is missing");
    }
  };
  return program;
}

TEST(SlotRotationModel, no_slot_is_lost_and_tickets_order_the_items) {
  const Report all = explore_all([] { return rotation(2, 2, true); }, {.preemptions = 2, .stale_reads = 1});
  EXPECT_TRUE(all.complete) << all.runs;
  EXPECT_EQ(all.failed_runs, 0U) << all.first_failure;
  const Report random = explore_random([] { return rotation(6, 12, true); }, 5000);
  EXPECT_EQ(random.failed_runs, 0U) << random.first_failure;
}

// A producer that stalls between claiming a free slot and emptying its cell makes the free ring
// look full, though fewer slots than cells are in it. So a release must try again.
TEST(SlotRotationModel, a_release_that_did_not_retry_would_lose_a_slot) {
  const Report report = explore_random([] { return rotation(6, 12, false); }, 5000);
  EXPECT_EQ(report.first_failure, "a slot was lost");
}

}  // namespace
}  // namespace pyecho::model
