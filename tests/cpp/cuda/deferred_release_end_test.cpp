// The end: of the retirement, of the context, of the driver, and in a child of fork().
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include "deferred_release_fixture.hpp"

namespace pyecho::cuda {
namespace {

using DeferredReleaseEnd = DeferredReleaseTest;

TEST_F(DeferredReleaseEnd, waits_for_the_device_and_ends_all_leases) {
  const auto others = batches(2);
  bool kept_until_then = false;
  std::jthread helper;
  {
    DeferredRelease retirement(device);
    standin_hold(STANDIN_HOLD);
    batch.take_copy_and_drop(1, retirement, stream);
    others[0]->take_copy_and_drop(2, retirement, device.stream());
    others[1]->take(3);
    others[1]->copy(nullptr);
    others[1]->drop(retirement, stream);
    helper = let_go_soon(*others[1], kept_until_then);
  }
  helper.join();
  EXPECT_TRUE(kept_until_then);
  EXPECT_TRUE(batch.ended() && others[0]->ended() && others[1]->ended());
  EXPECT_TRUE(batch.arrived() && others[0]->arrived() && others[1]->arrived());
  EXPECT_EQ(new_live_events(), 0);
}

TEST_F(DeferredReleaseEnd, waits_for_what_could_not_be_recorded) {
  for (const char* const call : {"cuCtxPushCurrent", "cuEventCreate", "cuEventRecord"}) {
    bool kept_until_then = false;
    std::jthread helper;
    {
      DeferredRelease retirement(device);
      standin_hold(STANDIN_HOLD);
      batch.take(1);
      batch.copy(stream);
      standin_fail_call(call, 1, kUnknown, 0);
      batch.drop(retirement, stream);
      helper = let_go_soon(batch, kept_until_then);
    }
    helper.join();
    EXPECT_TRUE(kept_until_then) << call;
    EXPECT_TRUE(batch.ended());
    EXPECT_TRUE(batch.arrived());
    batch.overwrite();
  }
}

TEST_F(DeferredReleaseEnd, in_a_forked_child_nothing_is_done) {
  DeferredRelease parents(device);
  standin_hold(STANDIN_HOLD);
  batch.take_copy_and_drop(1, parents, stream);
  OwnBatch dropped_in_the_child(device);
  dropped_in_the_child.take(2);
  EXPECT_EQ(in_forked_child([&] {
              alarm(60);
              const std::uint64_t calls = standin_calls();
              {
                DeferredRelease childs(device);
                dropped_in_the_child.drop(childs, stream);
                parents.poll();
                if (childs.waiting() != 0) {
                  return 1;
                }
              }
              parents.~DeferredRelease();
              return standin_calls() == calls ? 0 : 2;
            }),
            0);
  standin_drain();
  parents.poll();
  EXPECT_TRUE(batch.ended());
  EXPECT_TRUE(batch.arrived());
  dropped_in_the_child.drop(parents, stream);
  standin_drain();
}

// The thread that holds the mutex, most of the time, stays in the parent.
TEST_F(DeferredReleaseEnd, a_forked_child_does_not_wait_for_threads_that_are_not_there) {
  DeferredRelease retirement(device);
  standin_hold(STANDIN_HOLD);
  batch.take_copy_and_drop(1, retirement, stream);
  OwnBatch other(device);
  other.take(2);
  std::atomic<bool> enough = false;
  std::jthread looking([&] {
    while (!enough) {
      retirement.poll();
    }
  });
  for (int child = 0; child < 30; ++child) {
    ASSERT_EQ(in_forked_child([&] {
                alarm(60);
                other.drop(retirement, stream);
                retirement.poll();
                return 0;
              }),
              0);
  }
  enough = true;
  looking.join();
  other.drop(retirement, stream);
  standin_drain();
  retirement.poll();
  EXPECT_TRUE(batch.ended() && other.ended());
}

// Runs in a process of its own, because the driver is unusable afterwards. `then` gets a batch that waits, and one that is
// still held.
template <class End, class Then>
void after(const End& end, const Then& then) {
  alarm(60);
  const Device& device = Device::get(0);
  auto* const waiting = new OwnBatch(device);  // neither is freed: the driver would not unregister it
  auto* const held = new OwnBatch(device);
  bool right = false;
  {
    DeferredRelease retirement(device);
    standin_hold(STANDIN_HOLD);
    waiting->take_copy_and_drop(1, retirement, new_stream(device));
    held->take(2);
    held->copy(device.stream());
    end();
    right = then(retirement, *waiting, *held);
  }
  std::_Exit(right && waiting->ended() && held->ended() ? 0 : 1);
}

bool drop_and_look(DeferredRelease& retirement, OwnBatch& waiting, OwnBatch& held) {
  held.drop(retirement, nullptr);
  retirement.poll();
  return retirement.waiting() == 0 && waiting.ended() && held.ended();
}
bool drop_only(DeferredRelease& retirement, OwnBatch&, OwnBatch& held) {
  held.drop(retirement, nullptr);
  return true;
}

TEST(DeferredReleaseEndDeathTest, after_the_drivers_end_nothing_is_waited_for) {
  EXPECT_EXIT(after(standin_deinitialize, drop_and_look), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(after(standin_deinitialize, drop_only), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseEndDeathTest, in_a_broken_context_nothing_is_waited_for) {
  EXPECT_EXIT(after([] { standin_fault(kIllegalAddress); }, drop_and_look), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(after([] { standin_fault(kIllegalAddress); }, drop_only), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseEndDeathTest, in_a_destroyed_context_nothing_is_waited_for) {
  EXPECT_EXIT(after([] { standin_fault(kContextIsDestroyed); }, drop_and_look), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
