#include "core/stage/echo_queue.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace pyecho::test {
namespace {

TEST(EchoQueue, stop_ends_both_waits_and_what_was_drawn_ahead) {
  for (const bool starve : {true, false}) {
    EchoQueue queue({.plan = {.capacity = 2}, .prefetch = 1});
    Use use{};
    Reservation reservation{};
    std::thread waiting([&] {
      if (starve) {
        EXPECT_EQ(queue.next(use, kNever), Outcome::kClosed);
      } else {
        while (queue.input().reserve(reservation, kNever) == Outcome::kOk) {
          queue.input().commit(reservation);
        }
      }
    });
    if (!starve) {
      EXPECT_EQ(queue.next(use, kNever), Outcome::kOk);
    }
    queue.stop();
    waiting.join();
    EXPECT_EQ(queue.try_next(use), Outcome::kClosed);
    EXPECT_EQ(queue.input().reserve(reservation, kNever), Outcome::kClosed);
  }
}

}  // namespace
}  // namespace pyecho::test
