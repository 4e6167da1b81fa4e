// The sleep/wake hand-shake of EventCount in the model: no thread sleeps through an event, and writes before the event
// are visible after the wait. Each run executes core/sync/event_count.hpp itself.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/index_ring.hpp"
#include "model/atom.hpp"
#include "model/blocking.hpp"
#include "model/explore.hpp"

namespace pyecho::model {
namespace {

using ModelEventCount = BasicEventCount<Atom, Mutex, Condition>;

constexpr auto kNotInterrupted = [] { return false; };
const Limits kThorough{.preemptions = 3, .stale_reads = 2};

void expect(bool holds, const char* what) { Scheduler::current()->check(holds, what); }

Outcome sleep_until(ModelEventCount& count, std::uint64_t target, Deadline deadline = kNever) {
  return count.await(target, deadline, WaitStrategy::sleep(), kNotInterrupted);
}

void expect_none_fails(const Report& report) {
  EXPECT_TRUE(report.complete) << report.runs;
  EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
}

// Thread 0 advances `events` times, each after writing a payload; the others sleep for their targets.
Program sleepers(const std::vector<std::uint64_t>& targets, std::uint64_t events) {
  struct State {
    ModelEventCount count;
    std::deque<Plain<int>> payload;
  };
  auto state = std::make_shared<State>();
  state->payload.resize(events);
  Program program;
  program.threads.emplace_back([=] {
    for (std::uint64_t event = 0; event < events; ++event) {
      state->payload[event].write(1);
      state->count.advance();
    }
  });
  for (const std::uint64_t target : targets) {
    program.threads.emplace_back([=] {
      expect(sleep_until(state->count, target) == Outcome::kOk, "nothing else ends this wait");
      expect(state->payload[target - 1].read() == 1, "payload");
    });
  }
  program.afterwards = [=] { expect(state->count.read() == events, "an event was not counted"); };
  return program;
}

TEST(EventCountModel, nobody_sleeps_through_an_event) {
  for (const auto& targets : {std::vector<std::uint64_t>{1}, {2}, {1, 2}, {2, 2}}) {
    expect_none_fails(explore_all([&] { return sleepers(targets, 2); }, kThorough));
  }
  const Report random = explore_random([] { return sleepers({1, 3, 5}, 5); }, 5000);
  EXPECT_EQ(random.failed_runs, 0U) << random.first_failure;
}

// The sleeper for the first event causes the second one, so the later target must not hide the earlier one.
TEST(EventCountModel, the_least_target_is_the_one_that_counts) {
  const auto make = [] {
    auto count = std::make_shared<ModelEventCount>();
    Program program;
    program.threads.emplace_back([=] { count->advance(); });
    program.threads.emplace_back([=] {
      expect(sleep_until(*count, 1) == Outcome::kOk, "nothing else ends this wait");
      count->advance();
    });
    program.threads.emplace_back(
        [=] { expect(sleep_until(*count, 2) == Outcome::kOk, "nothing else ends this wait"); });
    return program;
  };
  expect_none_fails(explore_all(make, kThorough));
}

TEST(EventCountModel, two_counters_wake_a_sleeper_between_them) {
  const auto make = [] {
    auto count = std::make_shared<ModelEventCount>();
    Program program;
    program.threads.emplace_back([=] { count->advance(); });
    program.threads.emplace_back([=] { count->advance(2); });
    program.threads.emplace_back([=] { expect(sleep_until(*count, 3) == Outcome::kOk, "woken too early"); });
    return program;
  };
  expect_none_fails(explore_all(make, kThorough));
}

// Producers that sleep for a slot, as in SlotRing::reserve(), and two threads that release one each. A slot cannot be
// popped while an earlier cell is claimed but not filled, so a producer that was woken for it may sleep again. Its slot
// then belongs to the other producer, which the other release must wake too.
TEST(EventCountModel, no_slot_lies_idle_while_somebody_sleeps_for_one) {
  const auto make = [](bool impatient) {
    struct State {
      IndexRing<Atom> free{2};
      ModelEventCount released;
    };
    auto state = std::make_shared<State>();
    Program program;
    for (const std::uint32_t slot : {0U, 1U}) {
      program.threads.emplace_back([=] {
        expect(state->free.try_push(std::array{slot}) == 1, "each slot has a cell");
        state->released.advance();
      });
    }
    for (const bool patient : {true, !impatient}) {
      program.threads.emplace_back([=] {
        for (std::array<std::uint32_t, 1> slot{};;) {
          const std::uint64_t seen = state->released.read();
          if (state->free.try_pop(slot) == 1 ||
              sleep_until(state->released, seen + 1, patient ? kNever : Deadline{}) == Outcome::kTimeout) {
            return;
          }
        }
      });
    }
    return program;
  };
  expect_none_fails(explore_all([&] { return make(false); }, {.preemptions = 2, .stale_reads = 0}));
  expect_none_fails(explore_all([&] { return make(true); }, {.preemptions = 1, .stale_reads = 0}));
}

// A condition other than the count (for example, closed) is seen if alert() follows it.
TEST(EventCountModel, an_alert_makes_the_sleeper_look_again) {
  const auto make = [] {
    struct State {
      ModelEventCount count;
      Atomic<std::uint32_t, Atom> closed;
    };
    auto state = std::make_shared<State>();
    Program program;
    program.threads.emplace_back([=] {
      state->closed.store_release(1);
      state->count.alert();
    });
    program.threads.emplace_back([=] { state->count.advance(); });
    program.threads.emplace_back([=] {
      const auto closed = [&] { return state->closed.load_acquire() != 0; };
      expect(state->count.await(5, kNever, WaitStrategy::sleep(), closed) == Outcome::kEmpty, "not interrupted");
    });
    return program;
  };
  expect_none_fails(explore_all(make, kThorough));
}

// The deadline of one sleeper passes at any time or never.
TEST(EventCountModel, a_sleeper_that_gives_up_is_no_obstacle) {
  const auto make = [](std::uint64_t patient_target) {
    struct State {
      ModelEventCount count;
      Plain<int> payload;
      bool advanced = false;  // the model's own view
    };
    auto state = std::make_shared<State>();
    Program program;
    program.threads.emplace_back([=] {
      state->payload.write(1);
      state->count.advance(2);
      state->advanced = true;
    });
    program.threads.emplace_back([=] {
      const bool advanced_before = state->advanced;
      const Outcome outcome = sleep_until(state->count, 1, Deadline{});
      expect(outcome == Outcome::kOk || outcome == Outcome::kTimeout, "not interrupted");
      expect(!advanced_before || outcome == Outcome::kOk, "a timeout though the target had been reached");
      if (outcome == Outcome::kTimeout) {
        expect(sleep_until(state->count, 2) == Outcome::kOk, "nothing else ends this wait");
      }
      expect(state->payload.read() == 1, "payload");
    });
    if (patient_target > 0) {
      program.threads.emplace_back([=] {
        expect(sleep_until(state->count, patient_target) == Outcome::kOk, "nothing else ends this wait");
        expect(state->payload.read() == 1, "payload");
      });
    }
    return program;
  };
  for (const std::uint64_t patient_target : {0U, 2U}) {
    expect_none_fails(explore_all([&] { return make(patient_target); }, kThorough));
  }
}

// A thread that wakes late checks the count, not the clock. (Without preemptions and stale reads `advanced` is exact.)
TEST(EventCountModel, a_wait_times_out_only_if_the_count_has_not_come) {
  std::uint64_t timeouts = 0;
  std::uint64_t reached = 0;
  const auto make = [&] {
    struct State {
      ModelEventCount count;
      bool advanced = false;
    };
    auto state = std::make_shared<State>();
    Program program;
    program.threads.emplace_back([=] {
      state->count.advance();
      state->advanced = true;
    });
    program.threads.emplace_back([=, &timeouts, &reached] {
      const Outcome outcome = sleep_until(state->count, 1, Deadline{});
      expect(outcome == (state->advanced ? Outcome::kOk : Outcome::kTimeout), "the count and the answer differ");
      ++(outcome == Outcome::kOk ? reached : timeouts);
    });
    return program;
  };
  expect_none_fails(explore_all(make, {.preemptions = 0, .stale_reads = 0}));
  EXPECT_GT(timeouts, 0U);
  EXPECT_GT(reached, 0U);
}

}  // namespace
}  // namespace pyecho::model
