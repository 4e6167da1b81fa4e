// IndexRing with tickets, alone, and combined with a ring of free slots and a ticket counter as in SlotRing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "core/sync/index_ring.hpp"
#include "model/atom.hpp"
#include "model/explore.hpp"

namespace pyecho::model {
namespace {

using Tickets = std::vector<std::uint32_t>;

// Two publishers of tickets; thread 2 takes, up to `group` in a call.
struct Publishing {
  IndexRing<Atom> ring{4};
  std::array<Plain<std::uint32_t>, 4> payload;
  Tickets taken;

  void publish(const Tickets& run) {
    for (const std::uint32_t ticket : run) {
      payload[ticket].write(ticket + 10);
      ring.publish(ticket, ticket);
    }
  }
  void take(std::uint32_t group) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      Tickets tickets(group);
      tickets.resize(ring.try_pop(tickets));
      for (const std::uint32_t ticket : tickets) {
        Scheduler::current()->check(payload[ticket].read() == ticket + 10, "payload");
        taken.push_back(ticket);
      }
    }
  }
};

Report explore_publishing(std::uint32_t group, const Limits& limits) {
  const auto make = [&] {
    auto state = std::make_shared<Publishing>();
    Program program;
    for (const Tickets& run : {Tickets{2, 0}, Tickets{1, 3}}) {
      program.threads.push_back([=] { state->publish(run); });
    }
    program.threads.push_back([=] { state->take(group); });
    program.afterwards = [=] {
      state->take(group);
      Scheduler::current()->check(state->taken == Tickets{0, 1, 2, 3}, "order");
    };
    return program;
  };
  return explore_all(make, limits);
}

TEST(IndexRingTicketsModel, tickets_come_out_in_order_in_every_interleaving) {
  for (const std::uint32_t group : {1U, 3U}) {
    const Report report = explore_publishing(group, {.preemptions = 3, .stale_reads = 1});
    EXPECT_TRUE(report.complete);
    EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
  }
}

// The cycle of a slot through SlotRing: free ring, ticket, filled ring, free ring.
struct Rotation {
  static constexpr std::uint32_t kSlots = 2;
  IndexRing<Atom> free{kSlots};
  IndexRing<Atom> filled{kSlots};
  Sequence<Atom> tickets;
  std::array<Plain<std::uint64_t>, kSlots> payload;
  std::uint64_t taken = 0;
  bool retry_release;

  explicit Rotation(bool retry) : retry_release(retry) { release(std::array{0U, 1U}); }

  void release(std::span<const std::uint32_t> slots) {
    while (!(slots = slots.subspan(free.try_push(slots))).empty()) {
      if (!retry_release || Scheduler::current()->aborted()) {
        return Scheduler::current()->fail("a slot was lost");
      }
      Scheduler::current()->yield();
    }
  }
  void put(int times, std::size_t most) {
    for (int i = 0; i < times; ++i) {
      std::vector<std::uint32_t> slots(most);
      slots.resize(free.try_pop(slots));
      const std::uint64_t ticket = slots.empty() ? 0 : tickets.fetch_add_acq_rel(slots.size());
      for (std::size_t k = 0; k < slots.size(); ++k) {
        payload[slots[k]].write(ticket + k + 100);
        filled.publish(ticket + k, slots[k]);  // asserts that this thread sees the cell empty
      }
    }
  }
  void take(int times) {
    for (int i = 0; i < times; ++i) {
      std::vector<std::uint32_t> slots(kSlots);
      slots.resize(filled.try_pop(slots));
      for (const std::uint32_t slot : slots) {
        Scheduler::current()->check(payload[slot].read() == taken++ + 100, "order of tickets");
      }
      release(slots);
    }
  }
};

Program rotation(int puts, int takes, bool retry_release) {
  auto state = std::make_shared<Rotation>(retry_release);
  Program program;
  program.threads.push_back([=] { state->put(puts, 1); });
  program.threads.push_back([=] { state->put(puts, 2); });
  program.threads.push_back([=] { state->take(takes); });
  program.afterwards = [state] {
    state->take(2);
    Scheduler::current()->check(state->taken == state->tickets.load_relaxed(), "all are taken");
    std::array<std::uint32_t, Rotation::kSlots> slots{};
    Scheduler::current()->check(state->free.try_pop(slots) == Rotation::kSlots, "a slot is missing");
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

// A producer that stalls between claiming a free slot and emptying its cell makes the free ring look full, although it
// has fewer slots than cells. So a release must retry.
TEST(SlotRotationModel, a_release_that_did_not_retry_would_lose_a_slot) {
  const Report report = explore_random([] { return rotation(6, 12, false); }, 5000);
  EXPECT_EQ(report.first_failure, "a slot was lost");
}

}  // namespace
}  // namespace pyecho::model
