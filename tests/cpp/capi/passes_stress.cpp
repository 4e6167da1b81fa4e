// Threads of a native source that reserve while its pass ends.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "capi/buffer.hpp"

namespace pyecho::capi_tests {
namespace {

TEST(Pass, NoReservationOutlivesItsEnd) {
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    const auto core = std::make_shared<EchoBuffer>(
        EchoConfig{.plan = {.capacity = 1, .factor = 1.0, .batch_size = 1}, .leaves = {8}, .threads = 0});
    auto* const pass = new capi::Buffer(capi::Role::kPass, {}, core, nullptr);
    std::atomic<bool> ended = false;
    std::thread late([&] {
      pyecho_slot slot;
      std::size_t count = 0;
      bool interrupted = false;
      while (pass->reserve(std::span(&slot, 1), 0, count, interrupted) != Outcome::kClosed) {
      }
      ended = true;
    });
    for (int spin = 0; spin < round % 50 && !ended; ++spin) {
      std::this_thread::yield();
    }
    pass->close();
    pass->abort_open();
    late.join();
    EXPECT_EQ(core->input().open_reservations(), 0U) << round;
    core->stop();
    pass->release();
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
