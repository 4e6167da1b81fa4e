#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "fixture.hpp"

namespace pyecho::standin {
namespace {

using namespace std::chrono_literals;

// ---------------------------------------------------------------- look-ups

TEST_F(StandIn, LooksUpByVersion) {
  void* function = this;
  int status = -1;
  const auto look_up = [&](const char* name, int version) {
    function = this;
    status = -1;
    return cuGetProcAddress_v2(name, &function, version, kProcAddressLegacyStream, &status);
  };
  EXPECT_EQ(look_up("cuNothing", 2000), kNotFound);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(look_up("cuMemHostRegister", 4000), kSuccess);
  EXPECT_EQ(status, kSymbolNeedsNewerDriver);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(look_up("cuInit", 99000), kInvalidValue);
  EXPECT_EQ(function, nullptr);

  standin_set_version(10000);
  EXPECT_EQ(look_up("cuThreadExchangeStreamCaptureMode", 10010), kInvalidValue) << "newer than the driver";
  EXPECT_EQ(look_up("cuThreadExchangeStreamCaptureMode", 10000), kSuccess);
  EXPECT_EQ(status, kSymbolNeedsNewerDriver);
  EXPECT_EQ(look_up("cuLaunchHostFunc", 10000), kSuccess);
  EXPECT_NE(function, nullptr);

  standin_set_hidden("cuEventQuery,cuInit");
  EXPECT_EQ(look_up("cuEventQuery", 2000), kNotFound);
  EXPECT_EQ(look_up("cuInit", 2000), kNotFound);
  EXPECT_EQ(look_up("cuStreamCreate", 2000), kSuccess);
  EXPECT_EQ(standin_calls(), 0U) << "look-ups are not counted";
}

TEST_F(StandIn, NeedsInitialisation) {
  int value = 0;
  EXPECT_EQ(cu.device_get_count(&value), kNotInitialized);
  EXPECT_EQ(cu.event_query(nullptr), kNotInitialized);
  EXPECT_EQ(cu.thread_exchange_capture_mode(&value), kNotInitialized);
  EXPECT_EQ(cu.driver_get_version(&value), kSuccess);
  EXPECT_EQ(value, 12080);
  const char* text = nullptr;
  EXPECT_EQ(cu.get_error_name(kInvalidHandle, &text), kSuccess);
  EXPECT_STREQ(text, "CUDA_ERROR_INVALID_HANDLE");
  EXPECT_EQ(cu.get_error_string(kInvalidHandle, &text), kSuccess);
  EXPECT_STREQ(text, "invalid resource handle");
  EXPECT_EQ(cu.get_error_name(123456, &text), kInvalidValue);
  EXPECT_EQ(text, nullptr);

  EXPECT_EQ(cu.init(1), kInvalidValue);
  standin_set_init_result(kStubLibrary);
  EXPECT_EQ(cu.init(0), kStubLibrary);
  EXPECT_EQ(cu.device_get_count(&value), kNotInitialized);
  standin_set_init_result(kSuccess);
  standin_set_devices(0);
  EXPECT_EQ(cu.init(0), kNoDevice);
  standin_set_devices(1);
  EXPECT_EQ(cu.init(0), kSuccess);
  EXPECT_EQ(cu.device_get_count(&value), kSuccess);
}

// ---------------------------------------------------------------- injected failures

TEST_F(StandIn, FailsTheNthCall) {
  start();
  const EventHandle event = new_event();
  const std::uint64_t calls = standin_calls();
  standin_fail_call(nullptr, 2, kOutOfMemory, 0);
  EXPECT_EQ(cu.event_query(event), kSuccess);
  EXPECT_EQ(cu.event_query(event), kOutOfMemory);
  EXPECT_EQ(cu.event_query(event), kSuccess);
  EXPECT_EQ(standin_calls(), calls + 3);
  EXPECT_EQ(standin_calls_of("cuEventQuery"), 3U);
  EXPECT_EQ(standin_calls_of("cuNothing"), 0U);

  standin_fail_call("cuEventRecord", 2, kInvalidContext, 0);
  EXPECT_EQ(cu.event_record(event, nullptr), kSuccess);
  EXPECT_EQ(cu.event_synchronize(event), kSuccess);
  EXPECT_EQ(cu.event_record(event, nullptr), kInvalidContext);
  standin_fail_call(nullptr, 1, kInvalidContext, 0);
  standin_fail_call(nullptr, 0, 0, 0);
  EXPECT_EQ(cu.event_record(event, nullptr), kSuccess) << "cancelled";
}

TEST_F(HeldStandIn, StickyFailureIsAFaultOfTheContext) {
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  int* const source = new_pinned(1, 1);
  int target = 0;
  ASSERT_EQ(cu.memory_copy_to_device_async(device(&target), source, sizeof(int), stream), kSuccess);
  ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  std::atomic<int> returned{0};
  std::thread waiting([&] {
    EXPECT_EQ(cu.context_push(context), kSuccess);
    EXPECT_EQ(cu.event_synchronize(event), kIllegalAddress);
    ++returned;
  });
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(returned, 0);
  standin_fail_call("cuEventQuery", 1, kIllegalAddress, 1);
  EXPECT_EQ(cu.event_query(event), kIllegalAddress);
  waiting.join();
  EXPECT_EQ(cu.event_query(event), kIllegalAddress);
  EXPECT_EQ(cu.event_synchronize(event), kIllegalAddress);
  EXPECT_EQ(cu.stream_synchronize(stream), kIllegalAddress);
  EXPECT_EQ(cu.context_pop(nullptr), kIllegalAddress);
  EXPECT_EQ(cu.init(0), kIllegalAddress);
  EXPECT_EQ(standin_drain(), kIllegalAddress);
  standin_hold(STANDIN_RUN);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(standin_pending(), 2U);
  EXPECT_EQ(target, 0);
  const char* name = nullptr;
  EXPECT_EQ(cu.get_error_name(kIllegalAddress, &name), kSuccess);

  standin_restore();
  EXPECT_EQ(standin_pending(), 0U);
  EXPECT_EQ(cu.event_query(event), kSuccess) << "the handles are still good, the context is still current";
  EXPECT_EQ(cu.event_record(event, stream), kSuccess);
  EXPECT_EQ(cu.event_synchronize(event), kSuccess);
  EXPECT_EQ(target, 0) << "dropped";
}

TEST_F(StandIn, FaultStopsRunningStreams) {
  standin_set_max_delay_us(20'000);  // a second for them all
  start();
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  }
  std::thread fault([] { standin_fault(kIllegalAddress); });
  EXPECT_EQ(cu.stream_synchronize(stream), kIllegalAddress);
  fault.join();
  EXPECT_GT(standin_pending(), 0U);
}

TEST_F(StandIn, ResetForgetsEverything) {
  start();
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  new_pinned(4);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  }
  standin_set_version(1);
  standin_reset();
  EXPECT_EQ(standin_pending() + standin_calls() + standin_live_streams() + standin_live_events(), 0U);
  EXPECT_EQ(standin_registered_ranges() + standin_registered_bytes() + standin_retained_contexts(), 0U);
  EXPECT_EQ(cu.event_query(event), kNotInitialized);
  ASSERT_EQ(cu.init(0), kSuccess);
  EXPECT_EQ(cu.event_query(event), kInvalidContext);
  ASSERT_EQ(cu.primary_context_retain(&context, 0), kSuccess);
  ASSERT_EQ(cu.context_push(context), kSuccess);
  EXPECT_EQ(cu.event_query(event), kInvalidHandle);
  int version = 0;
  ASSERT_EQ(cu.driver_get_version(&version), kSuccess);
  EXPECT_EQ(version, 12080);
}

// ---------------------------------------------------------------- the driver's end

TEST_F(StandIn, EndsAndLosesItsWork) {
  start();
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  standin_hold(STANDIN_HOLD);
  ASSERT_EQ(cu.event_record(event, stream), kSuccess);
  std::thread waiting([&] {
    EXPECT_EQ(cu.context_push(context), kSuccess);
    EXPECT_EQ(cu.event_synchronize(event), kDeinitialized);
  });
  while (standin_calls_of("cuEventSynchronize") == 0) {
    std::this_thread::sleep_for(1ms);
  }
  standin_deinitialize();
  waiting.join();
  EXPECT_EQ(cu.event_query(event), kDeinitialized);
  EXPECT_EQ(cu.event_destroy(event), kDeinitialized);
  EXPECT_EQ(cu.context_pop(nullptr), kDeinitialized);
  EXPECT_EQ(cu.init(0), kDeinitialized);
  EXPECT_EQ(standin_drain(), kDeinitialized);
}

TEST_F(StandIn, IsDeadInAForkedChild) {
  start();
  const StreamHandle stream = new_stream();
  ASSERT_EQ(cu.event_record(new_event(), stream), kSuccess);
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const bool dead = cu.init(0) == kNotInitialized && cu.device_get_count(&count) == kNotInitialized &&
                      cu.stream_synchronize(stream) == kNotInitialized && cu.driver_get_version(&count) == kSuccess &&
                      standin_calls() > 0;
    standin_reset();
    _exit(dead && cu.init(0) == kNotInitialized ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(cu.stream_synchronize(stream), kSuccess) << "the parent is as before";
}

TEST_F(StandIn, LivesInAChildForkedBeforeInitialisation) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(cu.init(0) == kSuccess && cu.primary_context_retain(&context, 0) == kSuccess ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---------------------------------------------------------------- in programs of their own

class StandInProgram : public StandIn {
 protected:
  StandInProgram() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StandInProgram, ExitDoesNotWaitForStreams) {
  EXPECT_EXIT(
      {
        standin_set_max_delay_us(1000);
        start();
        static std::vector<int> source(1 << 20, 1);  // destroyed at exit, after the driver's end
        static std::vector<int> target(1 << 20);
        ASSERT_EQ(cu.memory_host_register(source.data(), source.size() * sizeof(int), 0), kSuccess);
        for (std::size_t i = 0; i < 50; ++i) {
          ASSERT_EQ(cu.memory_copy_to_device_async(device(&target[i * 1024]), source.data(), 4096, new_stream()),
                    kSuccess);
        }
        // Blocks for ever: exit() must not wait for it.
        ASSERT_EQ(extra.launch_host_function(new_stream(), [](void*) { pause(); }, nullptr), kSuccess);
        // A library that the program was linked with would end only after all of the program's destructors.
        std::atexit([] { standin_deinitialize(); });
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

GetProcAddress copy_lookup = nullptr;  // of another copy of the stand-in

TEST_F(StandInProgram, IsEndedForWhatIsDestroyedAfterIt) {
  EXPECT_EXIT(
      {
        std::atexit([] {  // registered before the library is loaded, so called after its end
          const auto api = load<DriverApi>(kSymbols, copy_lookup);
          int count = 0;
          const bool ended = api.device_get_count(&count) == kDeinitialized && api.init(0) == kDeinitialized &&
                             api.event_destroy(nullptr) == kDeinitialized;
          _exit(ended ? 7 : 8);
        });
        Dl_info info;
        ASSERT_NE(dladdr(reinterpret_cast<const void*>(&standin_reset), &info), 0);
        const std::filesystem::path path =
            std::filesystem::temp_directory_path() / ("standin_copy_" + std::to_string(getpid()) + ".so");
        std::filesystem::copy_file(info.dli_fname, path);
        void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        std::filesystem::remove(path);
        ASSERT_NE(library, nullptr);
        copy_lookup = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
        ASSERT_NE(copy_lookup, &cuGetProcAddress_v2);
        const auto api = load<DriverApi>(kSymbols, copy_lookup);
        ASSERT_EQ(api.init(0), kSuccess);
        ASSERT_EQ(api.primary_context_retain(&context, 0), kSuccess);
        ASSERT_EQ(api.context_push(context), kSuccess);
        StreamHandle stream = nullptr;
        EventHandle event = nullptr;
        ASSERT_EQ(api.stream_create(&stream, 0), kSuccess);
        ASSERT_EQ(api.event_create(&event, 0), kSuccess);
        ASSERT_EQ(api.event_record(event, stream), kSuccess);
        ASSERT_EQ(api.event_synchronize(event), kSuccess);
        ASSERT_EQ(dlclose(library), 0);  // it stays, as its threads do
        ASSERT_EQ(api.event_query(event), kSuccess);
        std::exit(1);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(StandInProgram, ReadsItsConfigurationFromTheEnvironment) {
  setenv("PYECHO_STANDIN_VERSION", "11080", 1);
  setenv("PYECHO_STANDIN_HIDE", "cuMemAlloc", 1);
  setenv("PYECHO_STANDIN_DEVICES", "3", 1);
  setenv("PYECHO_STANDIN_NUMA_NODE", "1", 1);
  setenv("PYECHO_STANDIN_REGISTER_LIMIT", "8", 1);
  setenv("PYECHO_STANDIN_SEED", "5", 1);
  setenv("PYECHO_STANDIN_MAX_DELAY_US", "1", 1);
  setenv("PYECHO_STANDIN_FAIL_CALL", "2:700:sticky:cuDeviceGetCount", 1);
  standin_reset();  // which reads them anew
  int value = 0;
  void* function = nullptr;
  EXPECT_EQ(cu.driver_get_version(&value), kSuccess);
  EXPECT_EQ(value, 11080);
  EXPECT_EQ(cuGetProcAddress_v2("cuMemAlloc", &function, 3020, 0, nullptr), kNotFound);
  start();
  EXPECT_EQ(cu.memory_host_register(&value, 16, 0), kOutOfMemory);
  EXPECT_EQ(cu.device_get_attribute(&value, kAttributeHostNumaId, 2), kSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cu.device_get_count(&value), kSuccess);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(cu.device_get_count(&value), kIllegalAddress);
  EXPECT_EQ(cu.event_query(nullptr), kIllegalAddress);
  setenv("PYECHO_STANDIN_INIT_RESULT", "34", 1);
  standin_reset();
  EXPECT_EQ(cu.init(0), kStubLibrary);

  setenv("PYECHO_STANDIN_VERSION", "12.8", 1);
  EXPECT_EXIT(standin_reset(), testing::KilledBySignal(SIGABRT), "PYECHO_STANDIN_VERSION=12.8 makes no sense");
  for (const char* const name : {"VERSION", "HIDE", "DEVICES", "NUMA_NODE", "REGISTER_LIMIT", "SEED", "MAX_DELAY_US",
                                 "FAIL_CALL", "INIT_RESULT"}) {
    unsetenv((std::string("PYECHO_STANDIN_") + name).c_str());
  }
  standin_reset();
}

}  // namespace
}  // namespace pyecho::standin
