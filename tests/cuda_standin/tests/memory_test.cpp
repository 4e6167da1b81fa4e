#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "fixture.hpp"

namespace pyecho::standin {
namespace {

using namespace std::chrono_literals;

TEST_F(StandIn, RegistersMemory) {
  start();
  std::array<int, 8> data{};
  EXPECT_EQ(cu.memory_host_register(data.data(), 0, 0), kInvalidValue);
  EXPECT_EQ(cu.memory_host_register(nullptr, 4, 0), kInvalidValue);
  ASSERT_EQ(cu.memory_host_register(&data[2], 8, kHostRegisterPortable), kSuccess);
  EXPECT_EQ(cu.memory_host_register(&data[0], 12, 0), kHostMemoryAlreadyRegistered);
  EXPECT_EQ(cu.memory_host_register(&data[3], 12, 0), kHostMemoryAlreadyRegistered);
  EXPECT_EQ(cu.memory_host_register(&data[0], 8, 0), kSuccess) << "beside it";
  EXPECT_EQ(standin_registered_ranges(), 2U);
  EXPECT_EQ(standin_registered_bytes(), 16U);

  unsigned type = 0;
  EXPECT_EQ(cu.pointer_get_attribute(&type, kPointerMemoryType, device(&data[3])), kSuccess);
  EXPECT_EQ(type, kMemoryTypeHost);
  EXPECT_EQ(cu.pointer_get_attribute(&type, kPointerMemoryType, device(&data[4])), kInvalidValue);

  std::array<int, 2> target{};
  ASSERT_EQ(cu.memory_copy_to_device_async(device(target.data()), &data[1], 8, nullptr), kSuccess);
  EXPECT_EQ(standin_unpinned_copies(), 0U) << "pinned by two ranges";
  ASSERT_EQ(standin_drain(), kSuccess);

  EXPECT_EQ(cu.memory_host_unregister(&data[3]), kHostMemoryNotRegistered);
  EXPECT_EQ(cu.memory_host_unregister(&data[2]), kSuccess);
  EXPECT_EQ(cu.memory_host_unregister(&data[2]), kHostMemoryNotRegistered);
}

TEST_F(StandIn, RegistersNoMoreThanTheLimit) {
  standin_set_register_limit(100);
  start();
  std::array<std::byte, 200> data{};
  ASSERT_EQ(cu.memory_host_register(data.data(), 60, 0), kSuccess);
  EXPECT_EQ(cu.memory_host_register(&data[100], 41, 0), kOutOfMemory);
  EXPECT_EQ(cu.memory_host_register(&data[100], 40, 0), kSuccess);
}

TEST_F(StandIn, CountsUnpinnedCopiesAndMakesThemAtOnce) {
  start();
  const StreamHandle stream = new_stream();
  int* const pinned = new_pinned(1, 1);
  int pageable = 2;
  int target = 0;
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), pinned, sizeof(int), stream), kSuccess);
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), &pageable, sizeof(int), stream), kSuccess);
  EXPECT_EQ(target, 2);
  EXPECT_EQ(standin_pending(), 0U);
  EXPECT_EQ(standin_unpinned_copies(), 1U);
  EXPECT_EQ(standin_copied_bytes(), 2 * sizeof(int));
}

TEST_F(HeldStandIn, UnregisteringDuringACopyIsAViolation) {
  int* const source = new_pinned(4, 1);
  int target = 0;
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), &source[3], sizeof(int), new_stream()), kSuccess);
  EXPECT_EQ(cu.memory_host_unregister(source), kSuccess);
  EXPECT_EQ(standin_violations(), 1U);
  EXPECT_NE(std::string(standin_last_violation()).find("cuMemHostUnregister"), std::string::npos);
  expected_violations_ = 1;
  EXPECT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(target, 0) << "skipped, as the memory may be gone";
}

TEST_F(StandIn, FreeWaitsForCopies) {
  standin_hold(STANDIN_STEP);
  start();
  DevicePointer memory = 0;
  ASSERT_EQ(extra.memory_allocate(&memory, 4), kSuccess);
  unsigned type = 0;
  EXPECT_EQ(cu.pointer_get_attribute(&type, kPointerMemoryType, memory), kSuccess);
  EXPECT_NE(type, kMemoryTypeHost);
  ASSERT_EQ(cu.memory_copy_to_device_async(memory, new_pinned(1), 4, new_stream()), kSuccess);
  EXPECT_EQ(extra.memory_free(memory), kSuccess);
  EXPECT_EQ(standin_copied_bytes(), 4U);
}

TEST_F(StandIn, HostFunctionMustNotCallTheDriver) {
  start();
  static std::atomic<Result> answer;
  answer = -1;
  static Result (*query)(EventHandle) = cu.event_query;
  ASSERT_EQ(extra.launch_host_function(new_stream(), [](void*) { answer = query(nullptr); }, nullptr), kSuccess);
  ASSERT_EQ(standin_drain(), kSuccess);
  EXPECT_EQ(answer, kNotPermitted);
  EXPECT_EQ(standin_violations(), 1U);
  expected_violations_ = 1;
}

// ---------------------------------------------------------------- contexts and devices

TEST_F(StandIn, NeedsAContextThatIsCurrent) {
  ASSERT_EQ(cu.init(0), kSuccess);
  StreamHandle stream = nullptr;
  EXPECT_EQ(cu.stream_create(&stream, kStreamNonBlocking), kInvalidContext);
  EXPECT_EQ(cu.event_query(nullptr), kInvalidContext);
  EXPECT_EQ(cu.context_pop(&context), kInvalidContext);
  EXPECT_EQ(cu.context_push(nullptr), kInvalidContext);
  ASSERT_EQ(cu.primary_context_retain(&context, 0), kSuccess);
  ASSERT_EQ(cu.context_push(context), kSuccess);
  EXPECT_EQ(cu.stream_create(&stream, kStreamNonBlocking), kSuccess);
  std::thread([&] { EXPECT_EQ(cu.stream_synchronize(stream), kInvalidContext); }).join();
  ContextHandle popped = nullptr;
  EXPECT_EQ(cu.context_pop(&popped), kSuccess);
  EXPECT_EQ(popped, context);
  EXPECT_EQ(cu.stream_synchronize(stream), kInvalidContext);
}

TEST_F(StandIn, HasTheDevicesItIsTold) {
  standin_set_devices(2);
  standin_set_numa_node(3);
  ASSERT_EQ(cu.init(0), kSuccess);
  int count = 0;
  ASSERT_EQ(cu.device_get_count(&count), kSuccess);
  EXPECT_EQ(count, 2);
  DeviceHandle handle = -1;
  ASSERT_EQ(cu.device_get(&handle, 1), kSuccess);
  EXPECT_EQ(cu.device_get(&handle, 2), kInvalidDevice);
  std::array<char, 64> name{};
  ASSERT_EQ(cu.device_get_name(name.data(), 64, handle), kSuccess);
  EXPECT_STREQ(name.data(), "Stand-in GPU 1");
  int node = -1;
  ASSERT_EQ(cu.device_get_attribute(&node, kAttributeHostNumaId, handle), kSuccess);
  EXPECT_EQ(node, 3);
  ContextHandle other = nullptr;
  EXPECT_EQ(standin_retained_contexts(), 0U);
  ASSERT_EQ(cu.primary_context_retain(&context, 1), kSuccess);
  ASSERT_EQ(cu.primary_context_retain(&other, 1), kSuccess);
  EXPECT_EQ(context, other);
  EXPECT_EQ(standin_retained_contexts(), 1U);
  EXPECT_EQ(standin_context_retains(1), 2U);
  EXPECT_EQ(standin_context_retains(0), 0U);
  EXPECT_EQ(cu.primary_context_retain(&context, 5), kInvalidDevice);
}

// ---------------------------------------------------------------- stream capture

TEST_F(StandIn, CaptureProhibitsUnsafeCalls) {
  start();
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  std::array<int, 4> data{};
  DevicePointer memory = 0;
  ASSERT_EQ(cu.memory_host_register(&data[2], 8, 0), kSuccess);
  ASSERT_EQ(extra.memory_allocate(&memory, 4), kSuccess);
  const std::vector<std::function<Result()>> unsafe{
      [&] { return cu.event_query(event); },
      [&] { return cu.event_synchronize(event); },
      [&] { return cu.stream_synchronize(stream); },
      [&] { return cu.stream_query(stream); },
      [&] { return cu.memory_host_register(data.data(), 8, 0); },
      [&] { return cu.memory_host_unregister(&data[2]); },
      [&] {
        DevicePointer another = 0;
        return extra.memory_allocate(&another, 4);
      },
      [&] { return extra.memory_free(memory); },
  };
  for (const auto& call : unsafe) {
    standin_begin_capture();
    EXPECT_EQ(call(), kStreamCaptureUnsupported);
    EXPECT_EQ(standin_end_capture(), kStreamCaptureInvalidated);
  }
  standin_begin_capture();
  std::thread([&] {
    ASSERT_EQ(cu.context_push(context), kSuccess);
    int mode = 1;  // THREAD_LOCAL: another thread's capture does not matter
    ASSERT_EQ(cu.thread_exchange_capture_mode(&mode), kSuccess);
    EXPECT_EQ(cu.event_query(event), kSuccess);
    mode = 0;
    ASSERT_EQ(cu.thread_exchange_capture_mode(&mode), kSuccess);
    EXPECT_EQ(cu.event_query(event), kStreamCaptureUnsupported);
  }).join();
  EXPECT_EQ(standin_end_capture(), kStreamCaptureInvalidated);

  standin_begin_capture();
  EXPECT_EQ(cu.event_record(new_event(), stream), kSuccess);
  int mode = kCaptureModeRelaxed;
  ASSERT_EQ(cu.thread_exchange_capture_mode(&mode), kSuccess);
  EXPECT_EQ(mode, 0);
  for (const auto& call : unsafe) {
    EXPECT_EQ(call(), kSuccess);
  }
  ASSERT_EQ(cu.thread_exchange_capture_mode(&mode), kSuccess);
  EXPECT_EQ(mode, kCaptureModeRelaxed);
  EXPECT_EQ(standin_end_capture(), kSuccess);
  EXPECT_EQ(cu.event_query(event), kSuccess);
}

}  // namespace
}  // namespace pyecho::standin
