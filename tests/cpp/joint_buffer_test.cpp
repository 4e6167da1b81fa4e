// Two EchoBuffers as ranks with an adaptive factor: the same decisions with any driver, and wake-ups at the horizon.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/memory/slot_pool.hpp"
#include "core/stage/echo_buffer.hpp"

namespace pyecho::test {
namespace {

constexpr std::uint64_t kItems = 600;

EchoBufferConfig config_of(std::uint64_t rank, std::uint32_t threads) {
  return {.leaf_bytes = {sizeof(std::uint64_t)},
          .batch_rows = 4,
          .capacity = 12,
          .factor = 4,
          .seed = 3,
          .prefetch = 1 + static_cast<std::uint32_t>(rank) * 6,
          .threads = threads,
          .burst = 32,
          .min_uses = 1,
          .first_stream = rank,
          .stream_step = 2};
}

// Puts all items, now and then late, and the end.
void produce(EchoBuffer& buffer, unsigned seed) {
  std::mt19937 random(seed);
  for (std::uint64_t item = 0; item < kItems; ++item) {
    Reservation reservation{};
    ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
    std::memcpy(buffer.slot_data(reservation.slot), &item, sizeof(item));
    buffer.commit(reservation);
    if (random() % 16 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
    }
  }
  buffer.close();
}

TEST(JointBuffer, two_ranks_have_the_same_batches_with_any_driver) {
  for (const auto& [threads, others] : {std::pair{0U, 0U}, {0U, 1U}, {1U, 2U}, {2U, 4U}}) {
    EchoBuffer first(config_of(0, threads));
    EchoBuffer second(config_of(1, others));
    std::thread producer([&] { produce(first, 1); });
    std::thread other_producer([&] { produce(second, 2); });
    const auto agree = [&](std::uint64_t batch) {
      const std::uint64_t events = std::min(first.arrived(), second.arrived());
      const std::array<Knot, 2> knots{{{.batch = batch, .events = events}, {.batch = Knot::kEver, .events = events}}};
      const bool end = events == kItems + 1;
      first.extend(std::span(knots).first(end ? 2 : 1));
      second.extend(std::span(knots).first(end ? 2 : 1));
      return end;
    };
    bool decided = agree(5);
    std::uint64_t batch = 0;
    for (;; ++batch) {
      std::array<Lease, 2> leases;
      const Outcome outcome = first.acquire(leases[0], kNever);
      ASSERT_EQ(second.acquire(leases[1], kNever), outcome) << batch;
      if (outcome != Outcome::kOk) {
        break;
      }
      ASSERT_EQ(leases[0].rows(), leases[1].rows());
      EXPECT_EQ(std::memcmp(leases[0].data(), leases[1].data(), leases[0].rows() * sizeof(std::uint64_t)), 0) << batch;
      if (batch % 4 == 0 && !decided) {
        decided = agree(batch + 9);
      }
    }
    producer.join();
    other_producer.join();
    EXPECT_GE(batch, kItems / 4);
    EXPECT_EQ(first.log(), second.log());
  }
}

TEST(JointBuffer, a_worker_that_sleeps_at_the_horizon_is_woken) {
  EchoBuffer buffer(config_of(0, 1));
  for (std::uint64_t item = 0; item < 12; ++item) {
    Reservation reservation{};
    ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
    std::memcpy(buffer.slot_data(reservation.slot), &item, sizeof(item));
    buffer.commit(reservation);
  }
  EXPECT_EQ(buffer.arrived(), 12U);
  Lease lease;
  for (std::uint64_t batch = 1; batch <= 12; ++batch) {
    EXPECT_EQ(buffer.try_acquire(lease), Outcome::kEmpty);
    buffer.extend(std::array<Knot, 1>{{{.batch = batch, .events = 0}}});
    EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
    lease.reset();
  }
}

}  // namespace
}  // namespace pyecho::test
