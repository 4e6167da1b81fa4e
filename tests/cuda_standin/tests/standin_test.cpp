#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "fixture.hpp"

namespace pyecho::standin {
namespace {

using namespace std::chrono_literals;

// ---------------------------------------------------------------- copies and streams

TEST_F(StandIn, CopiesLateAndReadsTheSourceThen) {
  standin_hold(STANDIN_HOLD);
  start();
  const StreamHandle stream = new_stream();
  int* const source = new_pinned(1, 1);
  DevicePointer memory = 0;
  ASSERT_EQ(extra.memory_allocate(&memory, sizeof(int)), kSuccess);
  ASSERT_EQ(cu.memory_copy_to_device_async(memory, source, sizeof(int), stream), kSuccess);
  EXPECT_EQ(cu.stream_query(stream), kNotReady);
  EXPECT_EQ(standin_pending(), 1U);
  EXPECT_EQ(standin_copied_bytes(), 0U);
  *source = 2;  // too early
  EXPECT_EQ(standin_step(), 1);
  EXPECT_EQ(standin_step(), 0);
  EXPECT_EQ(cu.stream_query(stream), kSuccess);
  EXPECT_EQ(standin_copied_bytes(), sizeof(int));

  int* const back = new_pinned(1, 0);
  ASSERT_EQ(extra.memory_copy_to_host_async(back, memory, sizeof(int), stream), kSuccess);
  EXPECT_EQ(standin_step(), 1);
  EXPECT_EQ(*back, 2);
  EXPECT_EQ(standin_copied_bytes(), sizeof(int)) << "to the host, not counted";
  EXPECT_EQ(standin_device_allocations(), 1U);
  EXPECT_EQ(extra.memory_free(memory), kSuccess);
  EXPECT_EQ(extra.memory_free(memory), kInvalidValue);
  EXPECT_EQ(standin_device_allocations(), 0U);
  EXPECT_EQ(standin_unpinned_copies(), 0U);
}

TEST_F(StandIn, StreamsOvertakeEachOther) {
  standin_set_max_delay_us(300);
  start();
  struct Note {
    std::vector<int>* order;
    std::mutex* mutex;
    int number;
  };
  std::vector<int> order;
  std::mutex mutex;
  std::array<Note, 40> notes{};
  for (int i = 0; i < 40; ++i) {
    notes[static_cast<std::size_t>(i)] = {&order, &mutex, i};
  }
  const std::array<StreamHandle, 2> streams{new_stream(), new_stream()};
  const HostFunctionPointer note = [](void* argument) {
    const auto* const it = static_cast<const Note*>(argument);
    const std::scoped_lock lock(*it->mutex);
    it->order->push_back(it->number);
  };
  for (std::size_t i = 0; i < notes.size(); ++i) {
    ASSERT_EQ(extra.launch_host_function(streams[i % 2], note, &notes[i]), kSuccess);
  }
  EXPECT_EQ(standin_drain(), kSuccess);
  ASSERT_EQ(order.size(), notes.size());
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  for (int parity : {0, 1}) {
    std::vector<int> of_stream;
    std::copy_if(order.begin(), order.end(), std::back_inserter(of_stream), [&](int i) { return i % 2 == parity; });
    EXPECT_TRUE(std::is_sorted(of_stream.begin(), of_stream.end()));
  }
}

TEST_F(StandIn, DefaultStreamWorks) {
  start();
  int* const source = new_pinned(2, 7);
  std::array<int, 2> target{};
  ASSERT_EQ(cu.memory_copy_to_device_async(device(target.data()), source, sizeof(int), nullptr), kSuccess);
  const auto legacy = reinterpret_cast<StreamHandle>(std::uintptr_t{1});
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target[1]), source, sizeof(int), legacy), kSuccess);
  ASSERT_EQ(cu.stream_synchronize(nullptr), kSuccess);
  EXPECT_EQ(target, (std::array{7, 7}));
  EXPECT_EQ(cu.stream_destroy(legacy), kInvalidHandle);
  EXPECT_EQ(standin_live_streams(), 0U);
}

TEST_F(StandIn, SynchronizeBlocksWhileHeld) {
  start();
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  standin_hold(STANDIN_HOLD);
  ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  std::atomic<int> returned{0};
  const auto wait = [&](auto synchronize, auto handle) {
    EXPECT_EQ(cu.context_push(context), kSuccess);
    EXPECT_EQ(synchronize(handle), kSuccess);
    ++returned;
  };
  std::thread of_event(wait, cu.event_synchronize, event);
  std::thread of_stream(wait, cu.stream_synchronize, stream);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(returned, 0);
  standin_hold(STANDIN_RUN);
  of_event.join();
  of_stream.join();
}

TEST_F(StandIn, HoldStopsStreamsThatRun) {
  start();
  int* const source = new_pinned(1000, 1);
  std::vector<int> target(1000);
  const std::array<StreamHandle, 2> streams{new_stream(), new_stream()};
  for (std::size_t i = 0; i < target.size(); ++i) {
    ASSERT_EQ(cu.memory_copy_to_device_async(device(&target[i]), &source[i], sizeof(int), streams[i % 2]), kSuccess);
  }
  for (int i = 0; i < 20; ++i) {
    standin_hold(STANDIN_HOLD);
    const std::uint64_t pending = standin_pending();
    const std::vector<int> before = target;
    std::this_thread::sleep_for(200us);
    EXPECT_EQ(standin_pending(), pending);
    EXPECT_EQ(target, before);
    if (standin_step() == 1) {
      EXPECT_EQ(standin_pending(), pending - 1);
    }
    standin_hold(STANDIN_RUN);
    std::this_thread::sleep_for(200us);
  }
  EXPECT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(target, std::vector<int>(1000, 1));
}

TEST_F(StandIn, SynchronizeStepsByItself) {
  standin_hold(STANDIN_STEP);
  start();
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  int* const source = new_pinned(1, 5);
  int target = 0;
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), source, sizeof(int), stream), kSuccess);
  ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), source, sizeof(int), stream), kSuccess);
  EXPECT_EQ(cu.event_synchronize(event), kSuccess);
  EXPECT_EQ(target, 5);
  EXPECT_EQ(standin_pending(), 1U);
  EXPECT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(standin_pending(), 0U);
}

TEST_F(HeldStandIn, DestroyedStreamFinishesItsWork) {
  const StreamHandle stream = new_stream();
  int* const source = new_pinned(1, 3);
  int target = 0;
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), source, sizeof(int), stream), kSuccess);
  EXPECT_EQ(standin_live_streams(), 1U);
  ASSERT_EQ(cu.stream_destroy(stream), kSuccess);
  EXPECT_EQ(standin_live_streams(), 0U);
  EXPECT_EQ(cu.stream_synchronize(stream), kInvalidHandle);
  EXPECT_EQ(standin_pending(), 1U);
  standin_hold(STANDIN_RUN);
  EXPECT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(target, 3);
}

// ---------------------------------------------------------------- events

TEST_F(HeldStandIn, EventTellsWhetherItsWorkIsDone) {
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  EXPECT_EQ(cu.event_query(event), kSuccess) << "never recorded";
  EXPECT_EQ(cu.event_synchronize(event), kSuccess);
  EXPECT_EQ(cu.stream_wait_event(stream, event, kLaunchDefault), kSuccess);
  EXPECT_EQ(standin_pending(), 0U);
  ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  EXPECT_EQ(cu.event_query(event), kNotReady);
  EXPECT_EQ(standin_step(), 1);
  EXPECT_EQ(cu.event_query(event), kSuccess);
  ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  EXPECT_EQ(cu.event_query(event), kNotReady) << "recorded anew";
}

TEST_F(HeldStandIn, WaitMeansTheRecordBeforeIt) {
  const StreamHandle first = new_stream();
  const StreamHandle second = new_stream();
  const EventHandle event = new_event();
  const EventHandle after = new_event();
  int* const source = new_pinned(1, 9);
  int target = 0;
  ASSERT_EQ(cu.event_record(event, first), kSuccess);
  ASSERT_EQ(cu.stream_wait_event(second, event, kLaunchDefault), kSuccess);
  ASSERT_EQ(cu.event_record(after, second), kSuccess);
  // Neither a new record nor the event's end changes what was to be waited for.
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), source, sizeof(int), first), kSuccess);
  ASSERT_EQ(cu.event_record(event, first), kSuccess);
  ASSERT_EQ(cu.event_destroy(event), kSuccess);
  ASSERT_EQ(cu.stream_destroy(first), kSuccess);
  EXPECT_EQ(standin_step(), 1) << "the first record; the other stream is waiting";
  int steps = 0;
  while (cu.event_query(after) == kNotReady && target == 0) {
    ASSERT_EQ(standin_step(), 1);
    ASSERT_LE(++steps, 3);
  }
  EXPECT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(target, 9);
}

TEST_F(StandIn, WaitingStreamComesAfterTheOther) {
  start();
  const StreamHandle copying = new_stream();
  const StreamHandle computing = new_stream();
  const EventHandle event = new_event();
  int* const source = new_pinned(1);
  int* const result = new_pinned(1);
  int middle = 0;
  for (int i = 1; i <= 200; ++i) {
    *source = i;
    ASSERT_EQ(cu.memory_copy_to_device_async(device(&middle), source, sizeof(int), copying), kSuccess);
    ASSERT_EQ(cu.event_record(event, copying), kSuccess);
    ASSERT_EQ(cu.stream_wait_event(computing, event, kLaunchDefault), kSuccess);
    ASSERT_EQ(extra.memory_copy_to_host_async(result, device(&middle), sizeof(int), computing), kSuccess);
    ASSERT_EQ(cu.stream_synchronize(computing), kSuccess);
    ASSERT_EQ(*result, i);
  }
}

TEST_F(StandIn, HandlesAreChecked) {
  start();
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  EXPECT_EQ(standin_live_events(), 1U);
  const auto bad_stream = reinterpret_cast<StreamHandle>(event);
  const auto bad_event = reinterpret_cast<EventHandle>(stream);
  EXPECT_EQ(cu.event_record(event, bad_stream), kInvalidHandle);
  EXPECT_EQ(cu.event_record(bad_event, stream), kInvalidHandle);
  EXPECT_EQ(cu.event_record(nullptr, stream), kInvalidHandle);
  EXPECT_EQ(cu.stream_wait_event(stream, bad_event, 0), kInvalidHandle);
  EXPECT_EQ(cu.stream_destroy(bad_stream), kInvalidHandle);
  ASSERT_EQ(cu.event_destroy(event), kSuccess);
  EXPECT_EQ(cu.event_destroy(event), kInvalidHandle);
  EXPECT_EQ(cu.event_query(event), kInvalidHandle);
  EXPECT_EQ(cu.event_synchronize(event), kInvalidHandle);
  ASSERT_EQ(cu.stream_destroy(stream), kSuccess);
  EXPECT_EQ(cu.stream_destroy(stream), kInvalidHandle);
  EXPECT_EQ(extra.launch_host_function(stream, [](void*) {}, nullptr), kInvalidHandle);
  EXPECT_NE(new_event(), event) << "a handle is never used twice";
}

// ---------------------------------------------------------------- schedules

// Two streams of three notes each, stepped: which order?
std::vector<int> run_schedule(const ExtraApi& extra, const std::array<StreamHandle, 2>& streams) {
  struct Note {
    std::vector<int>* order;
    int number;
  };
  std::vector<int> order;
  std::array<Note, 6> notes{};
  for (std::size_t i = 0; i < notes.size(); ++i) {
    notes[i] = {&order, static_cast<int>(i)};
    const HostFunctionPointer note = [](void* argument) {
      const auto* const it = static_cast<const Note*>(argument);
      it->order->push_back(it->number);
    };
    EXPECT_EQ(extra.launch_host_function(streams[i % 2], note, &notes[i]), kSuccess);
  }
  while (standin_step() == 1) {
  }
  return order;
}

TEST_F(HeldStandIn, ManySchedulesAreFastAndRepeatable) {
  const std::array<StreamHandle, 2> streams{new_stream(), new_stream()};
  const auto begin = std::chrono::steady_clock::now();
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    standin_set_seed(seed);
    orders.insert(run_schedule(extra, streams));
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  RecordProperty("milliseconds", static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  EXPECT_LT(took, 10s);
  EXPECT_EQ(orders.size(), 20U) << "3 of 6 places, all of them met";
  standin_set_seed(17);
  const std::vector<int> once = run_schedule(extra, streams);
  standin_set_seed(17);
  EXPECT_EQ(run_schedule(extra, streams), once);
}

TEST_F(StandIn, AnyThreadMayCall) {
  start();
  standin_set_max_delay_us(20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ASSERT_EQ(cu.context_push(context), kSuccess);
      const StreamHandle stream = new_stream();
      std::vector<int> source(16, t);
      std::vector<int> target(16, -1);
      ASSERT_EQ(cu.memory_host_register(source.data(), 64, kHostRegisterPortable), kSuccess);
      for (int i = 0; i < 50; ++i) {
        const EventHandle event = new_event();
        ASSERT_EQ(cu.memory_copy_to_device_async(device(target.data()), source.data(), 64, stream), kSuccess);
        ASSERT_EQ(cu.event_record(event, stream), kSuccess);
        ASSERT_EQ(cu.stream_wait_event(nullptr, event, kLaunchDefault), kSuccess);
        if (i % 2 == 0) {
          ASSERT_EQ(cu.event_synchronize(event), kSuccess);
        }
        ASSERT_EQ(cu.event_destroy(event), kSuccess);
      }
      ASSERT_EQ(cu.stream_synchronize(stream), kSuccess);
      ASSERT_EQ(target, source);
      ASSERT_EQ(cu.memory_host_unregister(source.data()), kSuccess);
      ASSERT_EQ(cu.stream_destroy(stream), kSuccess);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(standin_live_events(), 0U);
  EXPECT_EQ(standin_copied_bytes(), 4U * 50 * 64);
}

}  // namespace
}  // namespace pyecho::standin
