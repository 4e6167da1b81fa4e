// Work of other streams that waits for transfers.
#include <gtest/gtest.h>

#include <future>

#include "transfer_fixture.hpp"

namespace pyecho::cuda {
namespace {

using TransferWaitTest = TransferTest;

// Work of the user's program on a stream: checks whether the data is there when it runs.
struct Reader {
  const Target& target;
  const Source& source;
  std::atomic<int> seen = -1;

  void enqueue(const Device& device, StreamHandle stream) {
    const CurrentContext current(device);
    ASSERT_EQ(extra_api().launch_host_function(
                  stream,
                  [](void* self) {
                    auto* const reader = static_cast<Reader*>(self);
                    reader->seen = reader->target.has(reader->source) ? 1 : 0;
                  },
                  this),
              kSuccess);
  }
};

TEST_F(TransferWaitTest, another_stream_can_be_made_to_wait) {
  Target target(kBytes);
  TransferEngine engine(device, 2);
  const StreamHandle stream = new_stream(device);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Source source(pinned(0), seed);
    Reader reader{target, source};
    standin_set_seed(seed);
    standin_hold(STANDIN_HOLD);
    start(engine, target, source)->wait_on(stream);  // the transfer is destroyed before its copies are done
    reader.enqueue(device, stream);
    EXPECT_EQ(standin_pending(), 4U);
    standin_drain();
    EXPECT_EQ(reader.seen, 1);
    standin_hold(STANDIN_RUN);
    engine.drain();
  }
}

TEST_F(TransferWaitTest, waiting_costs_nothing_once_it_is_known_that_the_copies_are_done) {
  Source source(pinned(0), 1);
  Target target(kBytes);
  TransferEngine engine(device, 2);
  const auto transfer = start(engine, target, source);
  engine.drain();
  const std::uint64_t calls = standin_calls();
  transfer->wait_on(device.stream());
  EXPECT_EQ(standin_calls(), calls);
}

TEST_F(TransferWaitTest, a_mark_comes_after_all_that_the_stream_was_given) {
  Source source(pinned(0), 1);
  Target target(kBytes);
  TransferEngine engine(device, 2);
  const StreamHandle stream = new_stream(device);
  standin_hold(STANDIN_HOLD);
  start(engine, target, source);
  Reader computed{target, source};
  computed.enqueue(device, device.stream());
  const auto mark = engine.mark();
  EXPECT_FALSE(mark->done());
  mark->wait_on(stream);
  std::atomic<bool> in_order = false;
  std::pair<Reader*, std::atomic<bool>*> both{&computed, &in_order};
  {
    const CurrentContext current(device);
    ASSERT_EQ(extra_api().launch_host_function(
                  stream,
                  [](void* argument) {
                    const auto& [reader, answer] = *static_cast<decltype(both)*>(argument);
                    *answer = reader->seen == 1;
                  },
                  &both),
              kSuccess);
  }
  standin_drain();
  EXPECT_TRUE(in_order);
  standin_hold(STANDIN_RUN);
}

TEST_F(TransferWaitTest, a_mark_takes_no_place_of_a_transfer) {
  Source source(pinned(0), 1);
  Target target(kBytes);
  TransferEngine engine(device, 1);
  standin_hold(STANDIN_HOLD);
  for (int i = 0; i < 10; ++i) {
    engine.mark();
  }
  start(engine, target, source);
  EXPECT_EQ(new_live_events(), 1) << "those of marks that nobody keeps are used again";
  standin_hold(STANDIN_RUN);
}

TEST_F(TransferWaitTest, a_capture_by_another_thread_is_not_disturbed) {
  Source first(pinned(0), 1);
  Source second(pageable(0), 2);
  Source third(pinned(1), 3);
  Source fourth(pageable(1), 4);
  Target to_first(kBytes);
  Target to_second(kBytes);
  Target to_third(kBytes);
  const StreamHandle stream = new_stream(device);
  std::promise<void> end;
  std::promise<void> begun;
  std::future<int> capture = std::async(std::launch::async, [&] {
    standin_begin_capture();
    begun.set_value();
    end.get_future().wait();
    return standin_end_capture();
  });
  begun.get_future().wait();
  {
    TransferEngine engine(device, 2);
    start(engine, to_first, first)->wait_on(stream);
    start(engine, to_second, second)->wait_on(stream);
    start(engine, to_third, third);
    engine.mark()->wait_on(stream);
    engine.poll();
    engine.drain();
    start(engine, to_third, fourth);
  }
  end.set_value();
  EXPECT_EQ(capture.get(), kSuccess);
  EXPECT_TRUE(to_second.has(second));
  EXPECT_TRUE(to_third.has(fourth));
}

}  // namespace
}  // namespace pyecho::cuda
