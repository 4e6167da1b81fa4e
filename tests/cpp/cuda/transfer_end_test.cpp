// Engines that end when the driver has ended, is broken, or stayed in the parent process.
#include <gtest/gtest.h>

#include "transfer_fixture.hpp"

namespace pyecho::cuda {
namespace {

using namespace std::chrono_literals;

using TransferEndTest = TransferTest;

TEST_F(TransferEndTest, in_a_forked_child_its_end_waits_for_nothing) {
  Source source(pinned(0), 1);
  Target target(kBytes);
  auto engine = std::make_unique<TransferEngine>(device, 2);
  standin_hold(STANDIN_HOLD);
  auto transfer = start(*engine, target, source);
  EXPECT_EQ(in_forked_child([&] {
              const std::uint64_t calls = standin_calls();
              const auto refused = [](const auto& action) {
                try {
                  action();
                  return false;
                } catch (const CudaError& error) {
                  return error.code() == kNotInitialized;
                }
              };
              const bool all = refused([&] { start(*engine, target, source); }) && refused([&] { engine->poll(); }) &&
                               refused([&] { engine->drain(); }) && refused([&] { engine->mark(); }) &&
                               refused([&] { transfer->wait_on(nullptr); });
              engine.reset();
              transfer.reset();
              return all && source.times_let_go() == 2 && standin_calls() == calls ? 0 : 1;
            }),
            0);
  standin_hold(STANDIN_RUN);
}

void end_the_driver_before_the_engine() {
  const Device& device = Device::get(0);
  PinnedBuffer memory(device, 100);
  Source source({memory.data(), 100}, 1);
  Target target(100);
  auto engine = std::make_unique<TransferEngine>(device, 2);
  standin_hold(STANDIN_HOLD);
  const auto transfer = engine->start(std::vector{target.from(source)}, source.hold());
  standin_deinitialize();
  engine.reset();
  try {
    transfer->wait_on(nullptr);
  } catch (const CudaError& error) {
    std::exit(error.code() == kDeinitialized && source.times_let_go() == 1 ? 0 : 1);
  }
  std::exit(2);
}

TEST(TransferEndDeathTest, after_the_drivers_end_it_ends_without_it) {
  EXPECT_EXIT(end_the_driver_before_the_engine(), testing::ExitedWithCode(0), "");
}

void break_the_context_before_the_engine() {
  const Device& device = Device::get(0);
  PinnedBuffer memory(device, 100);
  Source source({memory.data(), 100}, 1);
  Target target(100);
  {
    TransferEngine engine(device, 2);
    standin_hold(STANDIN_HOLD);
    engine.start(std::vector{target.from(source)}, source.hold());
    std::jthread helper([] {
      std::this_thread::sleep_for(20ms);
      standin_fault(kIllegalAddress);
    });
    try {
      engine.drain();  // which blocks
      std::exit(1);
    } catch (const CudaError& error) {
      if (error.code() != kIllegalAddress || error.call() != "cuEventSynchronize") {
        std::exit(2);
      }
    }
  }
  std::exit(source.times_let_go() == 0 ? 0 : 3);  // LeakSanitizer checks at exit
}

TEST(TransferEndDeathTest, a_source_is_lost_if_nothing_tells_that_its_copies_are_done) {
  EXPECT_EXIT(break_the_context_before_the_engine(), testing::ExitedWithCode(0), "");
}

// Until then static objects of the program may own it.
void end_the_engine_after_main() {
  static PinnedBuffer memory(Device::get(0), 100);
  static Source source({memory.data(), 100}, 1);
  static Target target(100);
  static TransferEngine engine(Device::get(0), 2);
  engine.start(std::vector{target.from(source)}, source.hold());
  std::exit(0);
}

TEST(TransferEndDeathTest, it_may_be_destroyed_at_exit) {
  EXPECT_EXIT(end_the_engine_after_main(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
