// The life of an EchoBuffer: hoarding, stopping in the middle of anything, leases that outlive it,
// fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/stage/echo_buffer.hpp"
#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

using namespace std::chrono_literals;

EchoBufferConfig small() { return {.leaf_bytes = kItemLeaves, .batch_rows = 4, .capacity = 4, .with_info = true}; }

TEST(EchoBufferLife, a_hoarding_consumer_gets_more_memory) {
  EchoBuffer buffer(small());
  std::thread producer([&] {
    put_items(buffer, 0, 200);
    buffer.close();
  });
  std::vector<Lease> hoard;
  for (Lease lease; buffer.acquire(lease, kNever) == Outcome::kOk;) {
    hoard.push_back(std::move(lease));
  }
  producer.join();
  EXPECT_EQ(hoard.size(), 100U);
  EXPECT_EQ(buffer.stats().outstanding_leases, 100U);
  EXPECT_GT(buffer.stats().grown_blocks, 50U);
  std::vector<int> uses(200);
  for (const Lease& lease : hoard) {
    for (const Emission& emission : rows_of(lease)) {  // nothing was overwritten meanwhile
      ++uses[emission.item];
    }
  }
  EXPECT_EQ(uses, std::vector<int>(200, 2));
}

TEST(EchoBufferLife, at_the_memory_limit_it_is_exhausted_until_a_lease_ends) {
  for (const std::uint32_t threads : {1U, 3U}) {
    EchoBufferConfig config = small();
    config.threads = threads;
    config.max_bytes = EchoBuffer::min_bytes(config) + 2 * 4096;
    EchoBuffer buffer(config);
    std::thread producer([&] {
      put_items(buffer, 0, 200);
      buffer.close();
    });
    std::vector<Lease> hoard;
    std::uint64_t rows = 0;
    std::uint64_t exhausted = 0;
    for (;;) {
      Lease lease;
      const Outcome outcome = buffer.acquire(lease, kNever);
      if (outcome == Outcome::kEnd) {
        break;
      }
      if (outcome == Outcome::kExhausted) {
        ++exhausted;
        EXPECT_EQ(buffer.stats().outstanding_leases, buffer.stats().batch_blocks);
        EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kExhausted);
        hoard.erase(hoard.begin() + static_cast<std::ptrdiff_t>(exhausted % hoard.size()));
        continue;
      }
      ASSERT_EQ(outcome, Outcome::kOk);
      rows += lease.rows();
      hoard.push_back(std::move(lease));
    }
    producer.join();
    EXPECT_GT(exhausted, 0U);
    EXPECT_EQ(rows, 400U);
    EXPECT_EQ(buffer.stats().grown_blocks, 1U);  // the other page went into a batch made further ahead
  }
}

TEST(EchoBufferLife, leases_outlive_the_buffer) {
  auto buffer = std::make_unique<EchoBuffer>(small());
  std::thread producer([&] { put_items(*buffer, 0, 6); });
  Lease first;
  Lease second;
  ASSERT_EQ(buffer->acquire(first, kNever), Outcome::kOk);
  ASSERT_EQ(buffer->acquire(second, kNever), Outcome::kOk);
  producer.join();
  const auto before = rows_of(first);
  buffer.reset();
  EXPECT_EQ(rows_of(first), before);
  first.reset();
  EXPECT_EQ(rows_of(second).size(), 4U);
}

TEST(EchoBufferLife, a_wait_can_time_out_on_either_side) {
  EchoBuffer buffer(small());
  Lease lease;
  EXPECT_EQ(buffer.try_acquire(lease), Outcome::kEmpty);
  EXPECT_EQ(buffer.acquire(lease, Clock::now() + 2ms), Outcome::kTimeout);
  EXPECT_EQ(buffer.acquire(lease, Clock::now() - 1s), Outcome::kTimeout);
  Outcome outcome = Outcome::kOk;
  for (int i = 0; i < 10'000 && outcome == Outcome::kOk; ++i) {  // nobody takes what is put
    Reservation reservation{};
    outcome = buffer.reserve(reservation, Clock::now() + 5ms);
    if (outcome == Outcome::kOk) {
      fill_item(buffer, reservation.slot, 1);
      buffer.commit(reservation);
    }
  }
  EXPECT_EQ(outcome, Outcome::kTimeout);
  Reservation reservation{};
  EXPECT_EQ(buffer.try_reserve(reservation), Outcome::kFull);
  EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
}

TEST(EchoBufferLife, close_waits_for_outstanding_reservations) {
  EchoBufferConfig config = small();
  config.factor = 1.0;
  EchoBuffer buffer(config);
  Reservation early{};
  Reservation late{};
  ASSERT_EQ(buffer.reserve(early, kNever), Outcome::kOk);
  ASSERT_EQ(buffer.reserve(late, kNever), Outcome::kOk);
  buffer.close();
  Lease lease;
  EXPECT_EQ(buffer.acquire(lease, Clock::now() + 2ms), Outcome::kTimeout);
  fill_item(buffer, late.slot, 7);
  buffer.commit(late);
  EXPECT_EQ(buffer.acquire(lease, Clock::now() + 2ms), Outcome::kTimeout);
  buffer.abort(early);
  ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
  ASSERT_EQ(lease.rows(), 1U);
  EXPECT_EQ(item_in(lease, 0), 7U);
  EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kEnd);
}

TEST(EchoBufferLife, stop_ends_a_waiting_consumer_and_a_waiting_producer) {
  for (int round = 0; round < 50; ++round) {
    EchoBufferConfig config = small();
    config.threads = 1 + static_cast<std::uint32_t>(round) % 3;
    EchoBuffer buffer(config);
    const bool starve = round % 2 == 0;
    std::thread consumer;
    std::thread producer;
    if (starve) {  // the consumer waits, and so do the workers
      consumer = std::thread([&] {
        Lease lease;
        EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kClosed);
      });
    } else {  // the producer waits, and so do the workers
      producer = std::thread([&] {
        Reservation reservation{};
        while (buffer.reserve(reservation, kNever) == Outcome::kOk) {
          fill_item(buffer, reservation.slot, 0);
          buffer.commit(reservation);
        }
      });
    }
    Perturb perturb(static_cast<std::uint64_t>(round), 16);
    for (int i = 0; i < round; ++i) {
      perturb();
    }
    buffer.stop();
    buffer.stop();
    (starve ? consumer : producer).join();
    Lease lease;
    EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kClosed);
  }
}

TEST(EchoBufferLife, destruction_in_the_middle_of_anything_joins_the_workers) {
  for (std::uint64_t items = 0; items < 40; ++items) {
    EchoBufferConfig config = small();
    config.threads = 1 + static_cast<std::uint32_t>(items % 4);
    config.max_bytes = EchoBuffer::min_bytes(config);
    Lease lease;
    std::vector<Lease> hoard;
    Reservation reservation{};
    EchoBuffer buffer(config);
    for (std::uint64_t item = 0; item < items; ++item) {
      if (buffer.try_reserve(reservation) == Outcome::kOk) {
        fill_item(buffer, reservation.slot, item);
        buffer.commit(reservation);
      }
      if (buffer.try_acquire(lease) == Outcome::kOk) {
        hoard.push_back(std::move(lease));
      }
    }
    static_cast<void>(buffer.try_reserve(reservation));  // and never commit it
  }
}

// Threads do not follow into a forked child, so everything there is answered and nothing hangs.
TEST(EchoBufferLife, a_forked_child_is_told_and_can_destroy_the_buffer) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support threads after a multi-threaded fork";
#endif
  EchoBufferConfig config = small();
  config.capacity = 1;  // two items make a batch
  auto* const buffer = new EchoBuffer(config);
  Lease held;
  put_items(*buffer, 0, 2);
  ASSERT_EQ(buffer->acquire(held, kNever), Outcome::kOk);
  Lease lease;
  ASSERT_EQ(buffer->acquire(lease, Clock::now() + 20ms), Outcome::kTimeout);  // workers are asleep
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang becomes a death by signal
    Reservation reservation{};
    bool right = buffer->acquire(lease, kNever) == Outcome::kForked && buffer->try_acquire(lease) == Outcome::kForked &&
                 buffer->reserve(reservation, kNever) == Outcome::kForked &&
                 buffer->try_reserve(reservation) == Outcome::kForked;
    // A new thread may get the identity of a worker; destroying the buffer must not touch it.
    std::thread thread([] {});
    delete buffer;
    thread.join();
    right = right && rows_of(held).size() == 4;
    held.reset();
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  put_items(*buffer, 2, 4);  // the parent goes on
  EXPECT_EQ(buffer->acquire(lease, kNever), Outcome::kOk);
  delete buffer;
}

// A child may be born in the middle of any step of any thread.
TEST(EchoBufferLife, a_child_that_is_forked_while_everybody_works_can_destroy_the_buffer) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support threads after a multi-threaded fork";
#endif
  for (const std::size_t row_bytes : {8, 600}) {
    auto* const buffer = new EchoBuffer({.leaf_bytes = {row_bytes}, .factor = 64.0});
    std::thread producer([&] {
      Reservation reservation{};
      while (buffer->reserve(reservation, kNever) == Outcome::kOk) {
        buffer->commit(reservation);
      }
    });
    std::thread consumer([&] {
      for (Lease lease; buffer->acquire(lease, kNever) == Outcome::kOk; lease.reset()) {
      }
    });
    for (int round = 0; round < 400; ++round) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(20);
        delete buffer;
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0);
    }
    buffer->stop();
    producer.join();
    consumer.join();
    delete buffer;
  }
}

// Whether it gets to make one before the worker does is up to the scheduler, each time.
TEST(EchoBufferLife, a_consumer_that_waits_makes_batches_itself) {
  EchoBuffer buffer({.leaf_bytes = {4096}, .batch_rows = 64, .capacity = 128, .factor = 4.0});
  std::thread producer([&] {
    Reservation reservation{};
    while (buffer.reserve(reservation, kNever) == Outcome::kOk) {
      buffer.commit(reservation);
    }
  });
  const Clock::time_point limit = Clock::now() + 60s;
  for (Lease lease; buffer.stats().helped < 3 && Clock::now() < limit; lease.reset()) {
    ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
  }
  EXPECT_GE(buffer.stats().helped, 3U);
  EXPECT_LE(buffer.stats().helped, buffer.stats().batches + buffer.stats().batch_blocks);
  buffer.stop();
  producer.join();
}

TEST(EchoBufferLife, with_short_rows_it_leaves_them_to_the_workers) {
  EchoBuffer buffer({.leaf_bytes = {511}, .batch_rows = 4, .capacity = 4});
  std::thread producer([&] {
    for (std::uint64_t item = 0; item < 2000; ++item) {
      Reservation reservation{};
      ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
      buffer.commit(reservation);
    }
    buffer.close();
  });
  for (Lease lease; buffer.acquire(lease, kNever) == Outcome::kOk; lease.reset()) {
  }
  producer.join();
  EXPECT_EQ(buffer.stats().emitted, 4000U);
  EXPECT_EQ(buffer.stats().helped, 0U);
}

}  // namespace
}  // namespace pyecho::test
