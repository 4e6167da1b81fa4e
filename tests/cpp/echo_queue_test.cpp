#include "core/stage/echo_queue.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "support/perturb.hpp"
#include "support/plan_output.hpp"

namespace pyecho::test {
namespace {

using namespace std::chrono_literals;

// Returns the output of a newly begun queue, as iterations of one batch each. Each item is its own number.
Iterations run_queue(EchoQueue& queue, const Passes& passes, std::size_t iterations, std::uint32_t delays) {
  std::vector<std::uint64_t> item_in(queue.slots());
  std::thread producer([&] {
    Perturb perturb(1, delays);
    Reservation reservation{};
    std::uint64_t item = 0;
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      if (pass > 0) {
        ASSERT_EQ(queue.reserve(reservation, kNever), Outcome::kOk);
        queue.end_pass(reservation);
      }
      for (std::uint64_t end = item + passes[pass]; item < end; ++item) {
        ASSERT_EQ(queue.reserve(reservation, kNever), Outcome::kOk);
        item_in[reservation.slot] = item;
        perturb();
        queue.commit(reservation);
      }
    }
    queue.close();
  });
  Iterations all(iterations, Batches(1));
  Perturb perturb(2, delays);
  Use use{};
  for (Batches& batches : all) {
    while (queue.next(use, kNever) == Outcome::kOk) {
      batches[0].push_back({item_in[use.slot], use.ordinal});
      perturb();
      if (use.last) {
        queue.release(use.slot);
      }
    }
    EXPECT_EQ(queue.at_end(), &batches == &all.back());
  }
  EXPECT_EQ(queue.next(use, kNever), Outcome::kEnd);
  producer.join();
  return all;
}

TEST(EchoQueue, emits_its_plan_in_every_epoch_whatever_the_timing) {
  for (const std::uint32_t capacity : {1U, 2U, 9U}) {
    for (const double factor : {1.0, 2.5, 9.0}) {
      for (const Passes& passes : {Passes{0}, {1}, {70}, {20, 0, 30}}) {
        for (const std::uint64_t steps : {0U, 25U}) {
          const PlanConfig config{.capacity = capacity,
                                  .slots = capacity,
                                  .factor = factor,
                                  .seed = 5,
                                  .iteration_uses = steps,
                                  .segment_uses = 60};
          EchoQueue queue({.plan = {.capacity = capacity, .factor = factor, .seed = 5, .segment_uses = 60},
                           .steps = steps,
                           .prefetch = capacity});
          for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
            Plan plan(config);
            plan.begin(epoch, {});
            Iterations expected = run_plan(plan, config, passes, 1U << 14);
            for (Batches& batches : expected) {
              batches.resize(1);  // an empty iteration has one empty batch here
            }
            ASSERT_EQ(run_queue(queue, passes, expected.size(), epoch == 0 ? 0 : 8), expected);
            ASSERT_EQ(queue.begin(epoch + 1, {}), Outcome::kOk);
          }
        }
      }
    }
  }
}

TEST(EchoQueue, stop_ends_both_waits_and_what_was_drawn_ahead) {
  for (const bool starve : {true, false}) {
    EchoQueue queue({.plan = {.capacity = 2}, .prefetch = 1});
    Use use{};
    Reservation reservation{};
    std::thread waiting([&] {
      if (starve) {
        EXPECT_EQ(queue.next(use, kNever), Outcome::kClosed);
      } else {
        while (queue.reserve(reservation, kNever) == Outcome::kOk) {
          queue.commit(reservation);
        }
      }
    });
    if (!starve) {
      EXPECT_EQ(queue.next(use, kNever), Outcome::kOk);
    }
    queue.stop();
    waiting.join();
    EXPECT_EQ(queue.try_next(use), Outcome::kClosed);
    EXPECT_EQ(queue.try_reserve(reservation), Outcome::kClosed);
  }
}

}  // namespace
}  // namespace pyecho::test
