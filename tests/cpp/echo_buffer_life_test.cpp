// An EchoBuffer after a fork. That it stops at any moment: stress/echo_stress.cpp.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

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
                 buffer->input().reserve(place[0], kNever) == Outcome::kForked &&
                 buffer->input().try_reserve(place, count) == Outcome::kForked &&
                 begin_epoch(*buffer, 1, {}) == Outcome::kForked;
    buffer->input().close();
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
    while (buffer->input().reserve(reservation, kNever) == Outcome::kOk) {
      buffer->input().commit(reservation);
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
