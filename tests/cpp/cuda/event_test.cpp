#include "cuda/event.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fixture.hpp"

namespace pyecho::cuda {
namespace {

class EventTest : public CudaTest {
 protected:
  std::shared_ptr<EventPool> new_pool() const { return std::make_shared<EventPool>(device); }
  static std::vector<Event> take(EventPool& pool, std::size_t count) {
    std::vector<Event> events;
    for (std::size_t i = 0; i < count; ++i) {
      events.push_back(pool.take());
    }
    return events;
  }
};

TEST_F(EventTest, none_is_made_before_it_is_needed_nor_when_one_is_idle) {
  const auto pool = new_pool();
  EXPECT_EQ(standin_calls(), 0U);
  const CurrentContext current(device);
  take(*pool, 3);
  EXPECT_EQ(standin_calls_of("cuEventCreate"), 3U);
  for (int round = 0; round < 100; ++round) {
    take(*pool, 3);
  }
  EXPECT_EQ(standin_calls_of("cuEventCreate"), 3U);
  EXPECT_EQ(standin_calls_of("cuEventDestroy"), 0U);
  take(*pool, 4);
  EXPECT_EQ(standin_calls_of("cuEventCreate"), 4U);
}

TEST_F(EventTest, no_two_have_the_same_handle) {
  const auto pool = new_pool();
  const CurrentContext current(device);
  const Event first = pool->take();
  Event second = pool->take();
  EXPECT_NE(first.get(), second.get());
  const EventHandle given_back = second.get();
  second = Event();
  EXPECT_EQ(pool->take().get(), given_back);
}

TEST_F(EventTest, the_pool_lasts_as_long_as_its_events) {
  auto pool = new_pool();
  Event event;
  {
    const CurrentContext current(device);
    event = pool->take();
    pool.reset();
    device.driver().call(&DriverApi::event_record, event.get(), device.stream());
  }
  EXPECT_EQ(new_live_events(), 1);
  event = Event();
  EXPECT_EQ(new_live_events(), 0);
}

TEST_F(EventTest, an_event_that_cannot_be_made_leaves_the_pool_as_it_was) {
  const auto pool = new_pool();
  const CurrentContext current(device);
  standin_fail_call("cuEventCreate", 1, kOutOfMemory, 0);
  EXPECT_THROW(pool->take(), CudaError);
  EXPECT_EQ(new_live_events(), 0);
  EXPECT_NE(pool->take().get(), nullptr);
}

TEST_F(EventTest, any_thread_may_take_and_give_back) {
  const auto pool = new_pool();
  std::mutex mutex;
  std::vector<Event> handed_over;
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&] {
        const CurrentContext current(device);
        for (int round = 0; round < 500; ++round) {
          Event mine = pool->take();
          Event dropped;
          const std::scoped_lock lock(mutex);
          if (handed_over.size() < 4) {
            handed_over.push_back(std::move(mine));
          } else {
            dropped = std::move(handed_over.back());  // probably made by another thread
            handed_over.pop_back();
          }
        }
      });
    }
  }
  EXPECT_LE(standin_calls_of("cuEventCreate"), 4U + 4U + 4U);
  EXPECT_EQ(standin_calls_of("cuEventDestroy"), 0U);
  EXPECT_EQ(new_live_events(), static_cast<std::int64_t>(standin_calls_of("cuEventCreate")));
}

TEST_F(EventTest, in_a_forked_child_the_pool_ends_without_the_driver) {
  auto pool = new_pool();
  {
    const CurrentContext current(device);
    take(*pool, 2);
  }
  EXPECT_EQ(in_forked_child([&] {
              const std::uint64_t calls = standin_calls();
              pool.reset();
              return standin_calls() == calls ? 0 : 1;
            }),
            0);
}

// The thread that holds the pool's mutex, again and again, stays in the parent.
TEST_F(EventTest, a_forked_child_does_not_wait_for_threads_that_are_not_there) {
  const auto pool = new_pool();
  Event event;
  std::atomic<bool> enough = false;
  {
    const CurrentContext current(device);
    event = pool->take();
    static_cast<void>(pool->take());
  }
  std::jthread other([&] {
    while (!enough) {
      static_cast<void>(pool->take());  // the idle one, so that the driver is not called
    }
  });
  for (int child = 0; child < 100; ++child) {
    ASSERT_EQ(in_forked_child([&] {
                alarm(60);
                event = Event();
                return 0;
              }),
              0);
  }
  enough = true;
}

void end_the_driver_before_the_pool() {
  const Device& device = Device::get(0);
  auto pool = std::make_shared<EventPool>(device);
  Event event;
  {
    const CurrentContext current(device);
    event = pool->take();
    static_cast<void>(pool->take());
  }
  standin_deinitialize();
  const std::uint64_t calls = standin_calls();
  const std::uint64_t pushes = standin_calls_of("cuCtxPushCurrent");
  event = Event();
  pool.reset();
  // Only one call tells that the driver has ended; the others describe the error.
  const std::uint64_t words = standin_calls_of("cuGetErrorName") + standin_calls_of("cuGetErrorString");
  std::exit(standin_calls() == calls + 1 + words && standin_calls_of("cuCtxPushCurrent") == pushes + 1 ? 0 : 1);
}

TEST(EventDeathTest, after_the_drivers_end_the_pool_ends_without_it) {
  EXPECT_EXIT(end_the_driver_before_the_pool(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
