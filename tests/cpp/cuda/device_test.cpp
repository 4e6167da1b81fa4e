#include "cuda/device.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "fixture.hpp"

namespace pyecho::cuda {
namespace {

class DeviceTest : public CudaTest {
 protected:
  // Returns the thread's capture mode, and leaves it unchanged.
  int capture_mode() const {
    int mode = 1;
    device.driver().call(&DriverApi::thread_exchange_capture_mode, &mode);
    int unused = mode;
    device.driver().call(&DriverApi::thread_exchange_capture_mode, &unused);
    return mode;
  }
  void set_capture_mode(int mode) const { device.driver().call(&DriverApi::thread_exchange_capture_mode, &mode); }
  // True if no context is current in this thread.
  bool no_context() const {
    ContextHandle popped = nullptr;
    return device.driver().try_call(&DriverApi::context_pop, &popped) == kInvalidContext;
  }
};

TEST_F(DeviceTest, it_is_the_same_each_time_and_retained_once) {
  const Device& other = Device::get(1);
  standin_restore();
  EXPECT_EQ(&Device::get(0), &device);
  EXPECT_EQ(&Device::get(1), &other);
  EXPECT_NE(&other, &device);
  EXPECT_EQ(device.ordinal(), 0);
  EXPECT_EQ(other.ordinal(), 1);
  EXPECT_NE(device.context(), other.context());
  EXPECT_NE(device.stream(), other.stream());
  EXPECT_EQ(standin_context_retains(0), 1U);
  EXPECT_EQ(standin_context_retains(1), 1U);
  EXPECT_EQ(standin_calls(), 0U);
}

// In a process of its own, because devices keep their contexts.
TEST(DeviceDeathTest, devices_are_active_once_they_have_a_context) {
  const auto expect = [](const std::vector<int>& devices) { return active_devices() == devices ? 0 : 1; };
  EXPECT_EXIT(
      {
        standin_reset();
        standin_set_devices(3);
        int wrong = expect({});
        Device::get(1);
        wrong += expect({1});
        Device::get(0);
        wrong += expect({0, 1});
        wrong += in_forked_child([&] { return expect({}); });
        std::exit(wrong + (standin_retained_contexts() == 2 ? 0 : 1));
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(DeviceTest, threads_that_ask_at_the_same_time_get_the_same_one) {
  const Device* found[4] = {};
  {
    std::vector<std::jthread> threads;
    for (const Device*& place : found) {
      threads.emplace_back([&place] { place = &Device::get(1); });
    }
  }
  for (const Device* const each : found) {
    EXPECT_EQ(each, &Device::get(1));
  }
  EXPECT_EQ(standin_context_retains(1), 1U);
}

TEST_F(DeviceTest, a_number_without_a_device_is_refused) {
  for (const int ordinal : {-1, 2, 1000}) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        static_cast<void>(Device::get(ordinal));
        ADD_FAILURE() << "there is a device " << ordinal;
      } catch (const CudaError& error) {
        EXPECT_EQ(error.code(), kInvalidDevice);
        EXPECT_TRUE(says(error.what(), {"no CUDA device " + std::to_string(ordinal) + ", the last one is 1"}));
      }
    }
  }
}

TEST_F(DeviceTest, it_has_a_name_and_perhaps_a_numa_node) {
  EXPECT_EQ(device.name(), "Stand-in GPU 0");
  EXPECT_EQ(Device::get(1).name(), "Stand-in GPU 1");
  EXPECT_EQ(device.numa_node(), -1);
  standin_set_numa_node(3);
  EXPECT_EQ(device.numa_node(), 3);
  standin_fail_call("cuDeviceGetAttribute", 1, kInvalidValue, 0);
  EXPECT_EQ(device.numa_node(), -1);
  standin_fail_call("cuDeviceGetName", 1, kUnknown, 0);
  EXPECT_THROW(static_cast<void>(device.name()), CudaError);
}

TEST_F(DeviceTest, the_context_is_current_for_a_scope) {
  EXPECT_TRUE(no_context());
  {
    const CurrentContext current(device);
    const CurrentContext inner(Device::get(1));
    ContextHandle popped = nullptr;
    device.driver().call(&DriverApi::context_pop, &popped);
    EXPECT_EQ(popped, Device::get(1).context());
    device.driver().call(&DriverApi::context_push, popped);
  }
  EXPECT_TRUE(no_context());
}

TEST_F(DeviceTest, the_threads_capture_mode_is_restored) {
  for (const int mode : {0, 1, 2}) {
    set_capture_mode(mode);
    {
      const CurrentContext current(device);
      EXPECT_EQ(capture_mode(), kCaptureModeRelaxed);
      const CurrentContext inner(Device::get(1));
      EXPECT_EQ(capture_mode(), kCaptureModeRelaxed);
    }
    EXPECT_EQ(capture_mode(), mode);
  }
  set_capture_mode(0);
}

TEST_F(DeviceTest, all_is_as_before_when_a_call_within_the_scope_fails) {
  standin_fail_call("cuEventCreate", 1, kOutOfMemory, 0);
  EXPECT_THROW(
      {
        const CurrentContext current(device);
        EventHandle event = nullptr;
        device.driver().call(&DriverApi::event_create, &event, kEventDisableTiming);
      },
      CudaError);
  EXPECT_TRUE(no_context());
  EXPECT_EQ(capture_mode(), 0);
}

TEST_F(DeviceTest, all_is_as_before_when_the_scope_cannot_be_entered) {
  for (const char* const call : {"cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode"}) {
    standin_fail_call(call, 1, kUnknown, 0);
    try {
      const CurrentContext current(device);
      ADD_FAILURE() << "entered in spite of " << call;
    } catch (const CudaError& error) {
      EXPECT_EQ(error.call(), call);
      EXPECT_EQ(error.code(), kUnknown);
    }
    EXPECT_TRUE(no_context());
    EXPECT_EQ(capture_mode(), 0);
  }
}

TEST_F(DeviceTest, in_a_forked_child_nothing_reaches_the_driver) {
  EXPECT_EQ(in_forked_child([&] {
              const std::uint64_t calls = standin_calls();
              int thrown = 0;
              const auto count = [&thrown](const auto& action) {
                try {
                  action();
                } catch (const CudaError& error) {
                  thrown += std::string(error.what()).find("fork()") != std::string::npos ? 1 : 0;
                }
              };
              count([] { static_cast<void>(Device::get(0)); });
              count([&] { static_cast<void>(device.name()); });
              count([&] { const CurrentContext current(device); });
              return thrown == 3 && device.numa_node() == -1 && standin_calls() == calls ? 0 : 1;
            }),
            0);
}

// Also tests a device that could not be opened: the next call retries.
void open_a_device_in_spite_of_failures() {
  for (const char* const call : {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
                                 "cuThreadExchangeStreamCaptureMode", "cuStreamCreate"}) {
    standin_fail_call(call, 1, kUnknown, 0);
    try {
      static_cast<void>(Device::get(0));
      std::exit(1);
    } catch (const CudaError& error) {
      if (error.call() != call || error.code() != kUnknown) {
        std::exit(2);
      }
    }
  }
  std::exit(Device::get(0).stream() != nullptr && standin_live_streams() == 1 ? 0 : 3);
}

TEST(DeviceDeathTest, a_device_that_could_not_be_opened_can_be_asked_for_again) {
  EXPECT_EXIT(open_a_device_in_spite_of_failures(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
