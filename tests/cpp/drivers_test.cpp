// The output of an EchoBuffer equals its plan, for every driver and timing, and after any number of earlier epochs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kDrivers[] = {0, 1, 2, 4};  // threads; 0: the consumer makes the batches

struct Case {
  EchoConfig config;
  Passes passes;
};

Case random_case(Xoshiro256& random) {
  constexpr double kFactors[] = {1.0, 1.0, 1.5, 2.0, 2.9, 4.0, 11.0};
  Case made;
  EchoConfig& config = made.config;
  config.leaves = random.below(2) == 0 ? kItemLeaves : kLongItemLeaves;
  config.plan.batch_size = 1 + random.below(random.below(2) == 0 ? 4 : 40);
  config.plan.unique_in_batch = random.below(3) == 0;
  if (random.below(2) == 0) {
    config.plan.segment_uses = 1 + random.below(100);
  }
  config.plan.capacity =
      random.below(4) == 0 && !config.plan.unique_in_batch ? 1 : config.plan.batch_size + random.below(50);
  config.plan.factor = kFactors[random.below(7)];
  config.plan.seed = random.next();
  config.epoch = random.below(5);
  config.steps = random.below(4) == 0 ? 1 + random.below(20) : 0;
  config.with_info = random.below(2) == 0;
  config.prefetch = 1 + random.below(4);
  if (random.below(3) == 0) {
    keep_items(config);
  }
  for (std::uint32_t pass = random.below(3); pass < 3; ++pass) {
    made.passes.push_back(random.below(4) == 0 ? 0 : random.below(120));
  }
  if (made.passes.size() == 1 && random.below(2) == 0) {
    config.items = made.passes[0];
  }
  return made;
}

std::string describe(const Case& test) {
  const EchoConfig& config = test.config;
  return testing::PrintToString(test.passes) + " items, rows " + std::to_string(config.plan.batch_size) +
         ", capacity " + std::to_string(config.plan.capacity) + ", factor " + std::to_string(config.plan.factor) +
         ", prefetch " + std::to_string(config.prefetch) + ", threads " + std::to_string(config.threads) + ", steps " +
         std::to_string(config.steps) + ", segment_uses " + std::to_string(config.plan.segment_uses) +
         (config.leaves[1].slot_bytes == kLongItemLeaves[1].slot_bytes ? ", long items" : "") +
         (config.plan.unique_in_batch ? ", unique" : "") + (config.programs.empty() ? "" : ", items kept");
}

TEST(Drivers, all_put_out_the_plan_whatever_the_timing) {
  Xoshiro256 random(2024);
  for (int round = 0; round < 40; ++round) {
    Case test = random_case(random);
    const Iterations expected = plan_output(test.config, test.passes);
    for (const std::uint32_t threads : kDrivers) {
      test.config.threads = threads;
      test.config.max_bytes = round % 2 == 0 ? kUnlimited : EchoBuffer::min_bytes(test.config);
      for (const std::uint32_t delays : {0U, 1 + random.below(16)}) {
        EchoBuffer buffer(test.config);
        ASSERT_EQ(run_buffer(buffer, test.passes, expected.size(), delays), expected) << describe(test);
        ASSERT_EQ(buffer.stats().grown_blocks, 0U);
      }
    }
  }
}

TEST(Drivers, begin_starts_afresh_after_an_end_and_after_a_stop_half_way_with_the_same_memory) {
  Xoshiro256 random(7);
  for (const std::uint32_t threads : kDrivers) {
    for (int round = 0; round < 8; ++round) {
      Case test = random_case(random);
      EchoConfig& config = test.config;
      config.threads = threads;
      config.held = 4;
      EchoBuffer buffer(config);
      std::vector<std::pair<Lease, std::vector<Emission>>> kept(3);
      for (std::uint64_t epoch = config.epoch; epoch < config.epoch + 12; ++epoch) {
        const bool half_way = epoch % 2 == 0;
        const Iterations expected = plan_output(config, epoch, test.passes);
        if (half_way) {
          std::thread producer([&] { put_passes(buffer, test.passes); });
          for (std::uint32_t batches = random.below(8); batches > 0; --batches) {
            Lease lease;
            if (buffer.acquire(lease, kNever) == Outcome::kOk) {
              std::vector<Emission> rows = rows_of(lease);
              kept[batches % kept.size()] = {std::move(lease), std::move(rows)};
            }
          }
          buffer.stop();
          producer.join();
        } else {
          ASSERT_EQ(run_buffer(buffer, test.passes, expected.size()), expected) << describe(test);
        }
        ASSERT_EQ(buffer.begin(epoch + 1, {.items = config.items}), Outcome::kOk);
        for (const auto& [lease, rows] : kept) {
          ASSERT_TRUE(!lease || rows_of(lease) == rows);
        }
      }
      EXPECT_EQ(buffer.stats().grown_blocks, 0U);
    }
  }
}

EchoConfig adaptive(std::uint32_t threads) {
  return {.plan = {.capacity = 24, .factor = 6, .seed = 3, .min_uses = 2, .max_age = 40, .batch_size = 8},
          .leaves = kLongItemLeaves,
          .threads = threads};
}

// Slots also become free between two uses: an item that is put too early into one shows in the bytes of a row.
TEST(Drivers, an_adaptive_factor_stays_in_its_bounds_and_its_log_gives_the_same_batches) {
  for (const std::uint32_t threads : kDrivers) {
    EchoBuffer live(adaptive(threads));
    const Iterations found = run_buffer(live, {3000}, 1, 16);
    std::vector<int> uses(3000);
    for (const auto& batch : found[0]) {
      for (const Emission& emission : batch) {
        ++uses.at(emission.item);
      }
    }
    EXPECT_GE(*std::ranges::min_element(uses), 2);
    EXPECT_LE(*std::ranges::max_element(uses), 6);
    for (const std::uint32_t others : {0U, 3U}) {
      EchoConfig config = adaptive(others);
      config.plan.replay = std::make_shared<const DecisionLog>(live.log());
      EchoBuffer again(config);
      EXPECT_EQ(run_buffer(again, {3000}, 1, 5), found);
      EXPECT_FALSE(again.diverged());
    }
  }
}

// Workers that repeat items while the consumer does not wait would fill their queue with repeats at the beginning.
TEST(Drivers, batches_made_ahead_of_the_consumer_have_only_fresh_items) {
  for (const std::uint32_t threads : {1U, 3U}) {
    EchoConfig config = adaptive(threads);
    config.plan.capacity = config.plan.batch_size;
    config.plan.min_uses = 1;
    config.prefetch = 4;
    EchoBuffer buffer(config);
    const auto put = [&](std::uint32_t count) {
      for (; count > 0; --count) {
        Reservation reservation{};
        ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
        buffer.commit(std::span(&reservation, 1));
      }
    };
    put(3 * config.plan.batch_size);
    Lease lease;
    for (int batch = 0; batch < 3; ++batch) {
      ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
      for (const Use& use : lease.uses()) {
        EXPECT_EQ(use.ordinal, 0U) << batch;
      }
    }
    ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk) << "and for a consumer that waits, repeats";
    EXPECT_EQ(lease.uses()[0].ordinal, 1U);
    buffer.stop();
  }
}

// A producer that is about to take a slot while the stage is stopped leaves nothing behind.
TEST(Drivers, begin_after_a_stop_that_met_a_producer_at_its_ticket_is_allowed) {
  EchoBuffer buffer({.plan = {.capacity = 4}, .leaves = {8}, .threads = 0});
  Perturb perturb(1, 16);
  for (std::uint64_t epoch = 1; epoch < 500; ++epoch) {
    std::thread producer([&] {
      std::array<Reservation, 8> group{};
      for (std::uint32_t count = 0; buffer.try_reserve(group, count) != Outcome::kClosed;) {
        buffer.commit(std::span(group).first(count));
        Lease lease;
        static_cast<void>(buffer.try_acquire(lease));
      }
    });
    perturb();
    buffer.stop();
    producer.join();
    ASSERT_EQ(buffer.begin(epoch, {}), Outcome::kOk);
  }
}

// Regression: put() slept although slots were free, once the consumer had fallen behind.
TEST(Drivers, the_slot_of_an_item_whose_last_use_was_handed_out_can_be_reserved_at_once) {
  for (const std::uint32_t threads : kDrivers) {
    EchoBuffer buffer({.plan = {.capacity = 64, .batch_size = 8}, .leaves = kItemLeaves, .threads = threads});
    std::uint64_t item = 0;
    std::array<Reservation, 64> group{};
    for (std::uint32_t count = 0; buffer.try_reserve(group, count) == Outcome::kOk;) {
      for (const Reservation& reservation : std::span(group).first(count)) {
        put_item(buffer, reservation, item++);
      }
    }
    for (int batch = 0; batch < 300; ++batch) {
      Lease lease;
      ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
      for (const Use& use : lease.uses()) {
        Reservation reservation{};
        if (use.last) {
          ASSERT_EQ(buffer.reserve(reservation, Clock::now() + 20s), Outcome::kOk);
          put_item(buffer, reservation, item++);
        }
      }
    }
  }
}

// Its rows have been copied before.
TEST(Drivers, a_batch_that_the_end_of_a_pass_completes_gives_its_slots_back) {
  EchoConfig config{.plan = {.batch_size = 8}, .leaves = kItemLeaves, .threads = 0};
  config.max_bytes = EchoBuffer::min_bytes(config);
  for (const bool keep : {false, true}) {
    if (keep) {
      keep_items(config);
      config.max_bytes = EchoBuffer::min_bytes(config);
    }
    EchoBuffer buffer(config);
    Lease lease;
    for (int pass = 0; pass < 200; ++pass) {
      const auto reserved = [&] {
        Reservation reservation{};
        EXPECT_EQ(buffer.reserve(reservation, Clock::now() + 20s), Outcome::kOk);
        return reservation;
      };
      for (std::uint64_t item = 0; item < 5; ++item) {
        ASSERT_FALSE(HasFailure()) << "pass " << pass;
        put_item(buffer, reserved(), item);
        if (item == 3) {
          ASSERT_EQ(buffer.try_acquire(lease), Outcome::kOk);
        }
      }
      ASSERT_EQ(buffer.try_acquire(lease), Outcome::kEmpty);
      buffer.end_pass(reserved());
      ASSERT_EQ(buffer.try_acquire(lease), Outcome::kOk);
      EXPECT_EQ(lease.rows(), 2U);
      ASSERT_EQ(buffer.try_acquire(lease), Outcome::kEnd);
    }
  }
}

TEST(Drivers, the_end_of_an_iteration_does_not_wait_for_items_of_the_next_one) {
  for (const std::uint32_t threads : kDrivers) {
    EchoBuffer buffer({.plan = {.batch_size = 8}, .leaves = kItemLeaves, .threads = threads});
    for (int pass = 0; pass < 20; ++pass) {
      std::thread producer([&] {
        put_items(buffer, 0, 5);
        std::this_thread::sleep_for(1ms);  // the consumer has taken everything, and waits
        Reservation mark{};
        ASSERT_EQ(buffer.reserve(mark, kNever), Outcome::kOk);
        buffer.end_pass(mark);
      });
      Lease lease;
      ASSERT_EQ(buffer.acquire(lease, Clock::now() + 20s), Outcome::kOk);
      ASSERT_EQ(buffer.acquire(lease, Clock::now() + 20s), Outcome::kOk);
      EXPECT_EQ(lease.rows(), 2U);
      ASSERT_EQ(buffer.acquire(lease, Clock::now() + 20s), Outcome::kEnd);
      producer.join();
    }
  }
}

TEST(Drivers, after_a_stop_the_end_is_no_longer_told) {
  for (const std::uint32_t threads : kDrivers) {
    EchoBuffer buffer({.leaves = kItemLeaves, .threads = threads});
    Lease lease;
    buffer.close();
    EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kEnd);
    EXPECT_EQ(buffer.try_acquire(lease), Outcome::kEnd);
    buffer.stop();
    EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kClosed);
    EXPECT_EQ(buffer.try_acquire(lease), Outcome::kClosed);
  }
}

}  // namespace
}  // namespace pyecho::test
