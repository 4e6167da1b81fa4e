// The life of an EchoBuffer: memory limits, stops at any moment, fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "core/stage/echo_buffer.hpp"
#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

using namespace std::chrono_literals;

// For each driver.
class EchoBufferLife : public testing::TestWithParam<std::uint32_t> {
 protected:
  EchoConfig small_{
      .plan = {.capacity = 4, .batch_size = 4}, .leaves = kItemLeaves, .with_info = true, .threads = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Threads, EchoBufferLife, testing::Values(0U, 1U, 3U));

TEST_P(EchoBufferLife, at_the_memory_limit_it_is_exhausted_until_a_lease_ends) {
  const std::size_t block_bytes = BatchPool::block_bytes(SlotLayout(small_.leaves, 4, true), true);
  small_.max_bytes = EchoBuffer::min_bytes(small_) + 2 * block_bytes;  // at most half goes to prefetch and slots_ahead
  EchoBuffer buffer(small_);
  std::thread producer([&] { put_passes(buffer, {200}); });
  std::vector<Lease> hoard;
  Batches batches;
  std::uint64_t exhausted = 0;
  for (Lease lease;;) {
    const Outcome outcome = buffer.acquire(lease, kNever);
    if (outcome == Outcome::kEnd) {
      break;
    }
    if (outcome == Outcome::kExhausted) {
      ++exhausted;
      EXPECT_EQ(buffer.refusal(), "");
      EXPECT_EQ(buffer.stats().outstanding_leases, buffer.stats().batch_blocks);
      EXPECT_EQ(buffer.try_acquire(lease), Outcome::kExhausted);
      hoard.erase(hoard.begin() + static_cast<std::ptrdiff_t>(exhausted % hoard.size()));
      continue;
    }
    ASSERT_EQ(outcome, Outcome::kOk);
    batches.push_back(rows_of(lease));
    hoard.push_back(std::move(lease));
  }
  producer.join();
  EXPECT_GT(exhausted, 0U);
  EXPECT_EQ(buffer.stats().grown_blocks, 1U);
  EXPECT_EQ(Iterations{batches}, plan_output(small_, {200}));
}

// A consumer and workers without items, a producer without slots, or all of them without blocks.
TEST_P(EchoBufferLife, stop_ends_every_wait_and_destruction_joins) {
  small_.max_bytes = EchoBuffer::min_bytes(small_);
  for (std::uint64_t round = 0; round < 60; ++round) {
    std::vector<Lease> hoard;
    EchoBuffer buffer(small_);
    std::vector<std::thread> threads;
    if (round % 3 != 0) {
      threads.emplace_back([&] { put_items(buffer, 0, 1'000'000); });
    }
    if (round % 3 != 1) {
      threads.emplace_back([&] {
        Lease lease;
        Outcome outcome = Outcome::kOk;
        while ((outcome = buffer.acquire(lease, kNever)) == Outcome::kOk) {
          hoard.push_back(std::move(lease));
        }
        EXPECT_TRUE(outcome == Outcome::kClosed || outcome == Outcome::kExhausted);
      });
    }
    Perturb perturb(round, 16);
    for (std::uint64_t i = 0; i < round; ++i) {
      perturb();
    }
    if (round % 2 == 0 || !threads.empty()) {
      buffer.stop();
      buffer.stop();
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    Lease lease;
    EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kClosed);
  }
}

TEST_P(EchoBufferLife, destruction_in_the_middle_of_anything_joins_the_workers) {
  small_.max_bytes = EchoBuffer::min_bytes(small_);
  for (std::uint64_t items = 0; items < 40; ++items) {
    std::vector<Lease> hoard;
    EchoBuffer buffer(small_);
    Reservation reservation{};
    for (std::uint64_t item = 0; item < items; ++item) {
      if (buffer.reserve(reservation, Clock::now()) == Outcome::kOk) {
        put_item(buffer, reservation, item);
      }
      Lease lease;
      if (buffer.try_acquire(lease) == Outcome::kOk) {
        hoard.push_back(std::move(lease));
      }
    }
    static_cast<void>(buffer.reserve(reservation, Clock::now()));  // and never commit it
  }
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kForks = false;  // ThreadSanitizer does not support threads after a multi-threaded fork
#else
constexpr bool kForks = true;
#endif

// True if `child` returns true in a forked child and does not hang there.
bool in_child(const std::function<bool()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);  // a hang becomes a death by signal
    _exit(child() ? 0 : 1);
  }
  int status = 0;
  return waitpid(pid, &status, 0) == pid && status == 0;
}

TEST_P(EchoBufferLife, a_forked_child_is_told_and_can_destroy_the_buffer) {
  small_.plan.capacity = 1;  // two items make a batch
  auto* const buffer = new EchoBuffer(small_);
  Lease held;
  Lease lease;
  put_items(*buffer, 0, 2);
  ASSERT_EQ(buffer->acquire(held, kNever), Outcome::kOk);
  ASSERT_EQ(buffer->acquire(lease, Clock::now() + 20ms), Outcome::kTimeout);  // workers are asleep
  EXPECT_TRUE(!kForks || in_child([&] {
    std::array<Reservation, 1> place{};
    std::uint32_t count = 0;
    bool right = buffer->acquire(lease, kNever) == Outcome::kForked && buffer->try_acquire(lease) == Outcome::kForked &&
                 buffer->reserve(place[0], kNever) == Outcome::kForked &&
                 buffer->try_reserve(place, count) == Outcome::kForked && buffer->begin(1, {}) == Outcome::kForked;
    buffer->close();
    buffer->stop();
    std::thread thread([] {});  // may get the identity of a worker: destroying the buffer must not touch it
    delete buffer;
    thread.join();
    right = right && rows_of(held).size() == 4;
    held.reset();
    return right;
  }));
  put_items(*buffer, 2, 4);  // the parent continues
  EXPECT_EQ(buffer->acquire(lease, kNever), Outcome::kOk);
  delete buffer;
}

// A fork may happen in the middle of any step of any thread.
TEST_P(EchoBufferLife, a_child_that_is_forked_while_everybody_works_can_destroy_the_buffer) {
  auto* const buffer = new EchoBuffer({.plan = {.factor = 64.0}, .leaves = {600}, .threads = GetParam()});
  std::thread producer([&] {
    Reservation reservation{};
    while (buffer->reserve(reservation, kNever) == Outcome::kOk) {
      buffer->commit(reservation);
    }
  });
  std::thread consumer([&] {
    for (Lease lease; buffer->acquire(lease, kNever) == Outcome::kOk;) {
    }
  });
  for (int round = 0; kForks && round < 200; ++round) {
    ASSERT_TRUE(in_child([&] {
      delete buffer;
      return true;
    }));
  }
  buffer->stop();
  producer.join();
  consumer.join();
  delete buffer;
}

}  // namespace
}  // namespace pyecho::test
