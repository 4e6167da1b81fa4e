#include "cuda/deferred_release.hpp"

#include <gtest/gtest.h>

#include <future>

#include "deferred_release_fixture.hpp"

namespace pyecho::cuda {
namespace {

TEST_F(DeferredReleaseTest, making_one_costs_no_driver_call) {
  const std::uint64_t calls = standin_calls();
  {
    DeferredRelease retirement(device);
    retirement.poll();
    EXPECT_EQ(retirement.waiting(), 0U);
  }
  EXPECT_EQ(standin_calls(), calls);
}

TEST_F(DeferredReleaseTest, a_batch_is_kept_until_its_copy_is_done) {
  DeferredRelease retirement(device);
  standin_hold(STANDIN_HOLD);
  batch.take_copy_and_drop(1, retirement, stream);
  EXPECT_EQ(retirement.waiting(), 1U);
  EXPECT_EQ(standin_pending(), 3U) << "the copy and the records on its stream and on the default stream";
  for (int steps = 0; steps < 3; ++steps) {
    retirement.poll();
    EXPECT_FALSE(batch.ended());
    EXPECT_EQ(retirement.waiting(), 1U);
    ASSERT_EQ(standin_step(), 1);
  }
  EXPECT_TRUE(batch.arrived());
  EXPECT_FALSE(batch.ended()) << "nobody has looked";
  retirement.poll();
  EXPECT_TRUE(batch.ended());
  EXPECT_EQ(retirement.waiting(), 0U);
}

TEST_F(DeferredReleaseTest, work_that_a_stream_is_given_later_is_not_waited_for) {
  const auto others = batches(1);
  others[0]->take(2);
  DeferredRelease retirement(device);
  standin_hold(STANDIN_STEP);
  batch.take_copy_and_drop(1, retirement, stream);
  for (int later = 0; later < 100; ++later) {
    others[0]->copy(stream);
  }
  while (!batch.ended()) {
    ASSERT_EQ(standin_step(), 1);
    retirement.poll();
  }
  EXPECT_GT(standin_pending(), 50U);
  EXPECT_TRUE(batch.arrived());
  standin_drain();
}

TEST_F(DeferredReleaseTest, a_pool_waits_for_a_batch_that_is_on_its_way_and_does_not_grow) {
  const SlotLayout layout({64}, 1, false);
  const auto pool = std::make_shared<BatchPool>(layout, 1, std::size_t{1} << 20, PagePolicy{});
  DeferredRelease retirement(device);
  standin_hold(STANDIN_HOLD);
  retire(retirement, Lease(pool, pool->obtain()), device, stream);
  EXPECT_EQ(pool->obtain(), nullptr);
  EXPECT_EQ(pool->blocks(), 1U);
  standin_drain();
  retirement.poll();
  EXPECT_NE(pool->obtain(), nullptr);
  EXPECT_NE(pool->obtain(), nullptr) << "nothing is on its way any more";
  EXPECT_EQ(pool->blocks(), 2U);
}

TEST_F(DeferredReleaseTest, events_are_used_again_but_not_while_they_are_pending) {
  const auto many = batches(4);
  DeferredRelease retirement(device);
  for (std::uint64_t round = 0; round < 200; ++round) {
    standin_hold(STANDIN_HOLD);
    for (std::size_t i = 0; i < many.size(); ++i) {
      many[i]->take_copy_and_drop(round * many.size() + i, retirement, i % 2 == 0 ? stream : device.stream());
    }
    EXPECT_EQ(new_live_events(), 8);
    standin_drain();
    retirement.poll();
    ASSERT_EQ(retirement.waiting(), 0U);
  }
  EXPECT_EQ(standin_calls_of("cuEventCreate"), 8U);
  EXPECT_EQ(standin_calls_of("cuEventDestroy"), 0U);
}

// Keeps a stream busy until it dies.
class Blocked {
 public:
  explicit Blocked(const Device& device, StreamHandle stream) {
    const CurrentContext current(device);
    EXPECT_EQ(extra_api().launch_host_function(
                  stream, [](void* end) { static_cast<std::promise<void>*>(end)->get_future().wait(); }, &end_),
              kSuccess);
  }
  ~Blocked() {
    end_.set_value();
    standin_drain();
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  std::promise<void> end_;
};

TEST_F(DeferredReleaseTest, batches_end_in_the_order_in_which_their_copies_are_done) {
  const auto others = batches(3);
  DeferredRelease retirement(device);
  {
    const Blocked blocked(device, stream);
    batch.take_copy_and_drop(1, retirement, stream);
    for (const auto& other : others) {
      other->take_copy_and_drop(2, retirement, device.stream());
    }
    while (retirement.waiting() > 1) {
      retirement.poll();
    }
    EXPECT_FALSE(batch.ended());
  }
  retirement.poll();
  EXPECT_TRUE(batch.ended());
}

TEST_F(DeferredReleaseTest, a_look_in_vain_is_short_and_yet_all_are_looked_at) {
  const auto many = batches(100);
  const auto others = batches(3);
  DeferredRelease retirement(device);
  {
    const Blocked blocked(device, stream);
    for (const auto& each : many) {
      each->take_copy_and_drop(1, retirement, stream);
    }
    for (const auto& other : others) {
      other->take_copy_and_drop(2, retirement, device.stream());
    }
    const CurrentContext current(device);
    device.driver().call(&DriverApi::stream_synchronize, device.stream());
    device.driver().call(&DriverApi::stream_synchronize, StreamHandle{nullptr});
    for (int look = 0; look < 10; ++look) {
      const std::uint64_t queries = standin_calls_of("cuEventQuery");
      retirement.poll();
      EXPECT_LE(standin_calls_of("cuEventQuery") - queries, 2 * (16 + others.size()));
    }
    EXPECT_EQ(retirement.waiting(), many.size());
    EXPECT_TRUE(others[0]->ended() && others[1]->ended() && others[2]->ended());
  }
  retirement.poll();
  EXPECT_EQ(retirement.waiting(), 0U) << "what is done is not counted";
}

TEST_F(DeferredReleaseTest, any_thread_may_drop_and_look) {
  const auto many = batches(3);
  DeferredRelease retirement(device);
  standin_set_max_delay_us(20);
  {
    std::vector<std::jthread> threads;
    for (const auto& mine : many) {
      threads.emplace_back([&] {
        const StreamHandle own_stream = new_stream(device);
        for (std::uint64_t round = 0; round < 100; ++round) {
          mine->take_copy_and_drop(round, retirement, own_stream);
          while (!mine->ended()) {
            retirement.poll();
          }
          EXPECT_TRUE(mine->arrived());
          mine->overwrite();
        }
      });
    }
  }
  EXPECT_EQ(retirement.waiting(), 0U);
}

}  // namespace
}  // namespace pyecho::cuda
