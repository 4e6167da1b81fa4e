#include "cuda/driver.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "fixture.hpp"

namespace pyecho::cuda {
namespace {

// Each test configures the stand-in and loads drivers of its own from it.
class DriverTest : public testing::Test {
 protected:
  DriverTest() { standin_restore(); }
  ~DriverTest() override { standin_restore(); }

  static Driver load() { return Driver(standin_path()); }
  static void expect_no_use(const Driver& driver, Result code) {
    EXPECT_FALSE(driver.ready());
    EXPECT_EQ(driver.device_count(), 0);
    try {
      driver.require();
      ADD_FAILURE() << "require() has not thrown";
    } catch (const CudaError& error) {
      EXPECT_EQ(error.what(), driver.explanation());
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(error.name(), "");
      EXPECT_EQ(error.call(), "");
    }
  }
};

TEST_F(DriverTest, a_driver_with_a_device_is_ready) {
  const Driver driver = load();
  EXPECT_TRUE(driver.ready());
  EXPECT_EQ(driver.explanation(), "");
  EXPECT_EQ(driver.version(), 12080);
  EXPECT_EQ(driver.device_count(), 2);
  EXPECT_NO_THROW(driver.require());
}

TEST_F(DriverTest, it_can_be_switched_off) {
  const Driver driver("none");
  expect_no_use(driver, kNotInitialized);
  EXPECT_TRUE(says(driver.explanation(), {"PYECHO_CUDA_DRIVER=none", "unset"}));
  EXPECT_EQ(driver.version(), 0);
}

TEST_F(DriverTest, without_a_library_it_says_what_was_looked_for) {
  const Driver driver("libthere-is-no-such-thing.so.1");
  expect_no_use(driver, kNotInitialized);
  EXPECT_TRUE(says(driver.explanation(), {"libthere-is-no-such-thing.so.1", "install", "PYECHO_CUDA_DRIVER"}));
  EXPECT_EQ(driver.version(), 0);
}

TEST_F(DriverTest, a_library_that_is_no_driver_is_refused) {
  const Driver driver("libm.so.6");
  expect_no_use(driver, kNotInitialized);
  EXPECT_TRUE(says(driver.explanation(), {"libm.so.6", "no CUDA driver", "12.0", "update"}));
  EXPECT_EQ(driver.version(), 0);
}

TEST_F(DriverTest, versions_before_12_are_too_old) {
  for (const auto& [version, text] : {std::pair{11080, "11.8"}, std::pair{11000, "11.0"}}) {
    standin_set_version(version);
    const Driver driver = load();
    expect_no_use(driver, kNotInitialized);
    EXPECT_TRUE(says(driver.explanation(), {text, "12.0", "update"}));
    EXPECT_EQ(driver.version(), version);
  }
  EXPECT_EQ(standin_calls_of("cuInit"), 0U);
}

TEST_F(DriverTest, a_version_without_a_symbol_is_told_by_the_symbol) {
  for (const auto& [version, symbol, needs] : {std::tuple(9020, "cuStreamIsCapturing", "10.0"),
                                               std::tuple(10000, "cuThreadExchangeStreamCaptureMode", "10.1")}) {
    standin_set_version(version);
    const Driver driver = load();
    expect_no_use(driver, kNotInitialized);
    EXPECT_TRUE(says(driver.explanation(), {symbol, needs}));
  }
}

TEST_F(DriverTest, versions_from_12_on_will_do) {
  for (const int version : {12000, 12010, 13000, 99990}) {
    standin_set_version(version);
    const Driver driver = load();
    EXPECT_TRUE(driver.ready()) << driver.explanation();
    EXPECT_EQ(driver.version(), version);
  }
}

TEST_F(DriverTest, every_missing_symbol_is_named) {
  for (const Symbol& symbol : kSymbols) {
    standin_set_hidden(symbol.name);
    const Driver driver = load();
    expect_no_use(driver, kNotInitialized);
    EXPECT_TRUE(says(driver.explanation(), {std::string("lacks ") + symbol.name + " ", "update"}));
  }
  standin_set_hidden("");
  EXPECT_TRUE(load().ready());
}

TEST_F(DriverTest, a_stub_is_recognised_by_its_answers) {
  standin_fail_call("cuGetProcAddress", 1, kStubLibrary, 0);
  const Driver by_lookup = load();
  expect_no_use(by_lookup, kNotInitialized);
  EXPECT_TRUE(says(by_lookup.explanation(), {"stub", "PYECHO_CUDA_DRIVER"}));

  standin_set_init_result(kStubLibrary);
  const Driver by_init = load();
  expect_no_use(by_init, kNotInitialized);
  EXPECT_TRUE(says(by_init.explanation(), {"stub", "cuInit", "(34)"}));
}

TEST_F(DriverTest, a_failed_initialisation_is_told_with_its_code) {
  for (const auto& [result, name] :
       {std::pair{kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY (2)"}, std::pair{kUnknown, "CUDA_ERROR_UNKNOWN (999)"},
        std::pair{803, "unknown error (803)"}}) {
    standin_set_init_result(result);
    const Driver driver = load();
    expect_no_use(driver, kNotInitialized);
    EXPECT_TRUE(says(driver.explanation(), {"cuInit failed", name, "nvidia-smi"}));
    EXPECT_EQ(driver.version(), 12080);
  }
}

TEST_F(DriverTest, no_device_is_a_state_of_its_own) {
  standin_set_init_result(kNoDevice);
  const Driver by_result = load();
  expect_no_use(by_result, kNoDevice);
  EXPECT_TRUE(says(by_result.explanation(), {"(100)", "CUDA_VISIBLE_DEVICES"}));

  standin_set_init_result(kSuccess);
  standin_set_devices(0);
  const Driver by_count = load();
  expect_no_use(by_count, kNoDevice);
  EXPECT_TRUE(says(by_count.explanation(), {"CUDA_VISIBLE_DEVICES"}));
  EXPECT_EQ(by_count.version(), 12080);
}

TEST_F(DriverTest, a_device_count_that_fails_is_told) {
  standin_fail_call("cuDeviceGetCount", 1, kUnknown, 0);
  const Driver driver = load();
  expect_no_use(driver, kNotInitialized);
  EXPECT_TRUE(says(driver.explanation(), {"cuDeviceGetCount failed: CUDA_ERROR_UNKNOWN (999)"}));
}

TEST_F(DriverTest, in_a_forked_child_it_is_dead_and_says_why) {
  const Driver driver = load();
  const int answer = in_forked_child([&] {
    const bool told = driver.explanation().find("fork()") != std::string::npos &&
                      driver.explanation().find("spawn") != std::string::npos;
    try {
      driver.require();
    } catch (const CudaError& error) {
      return !driver.ready() && driver.device_count() == 0 && told && error.code() == kNotInitialized &&
                     error.what() == driver.explanation()
                 ? 0
                 : 1;
    }
    return 2;
  });
  EXPECT_EQ(answer, 0);
  EXPECT_TRUE(driver.ready());
}

TEST_F(DriverTest, an_error_carries_code_name_and_call) {
  const Driver driver = load();
  try {
    DeviceHandle handle = 0;
    driver.call(&DriverApi::device_get, &handle, 77);
    ADD_FAILURE() << "the call has not failed";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), kInvalidDevice);
    EXPECT_EQ(error.name(), "CUDA_ERROR_INVALID_DEVICE");
    EXPECT_EQ(error.call(), "cuDeviceGet");
    EXPECT_TRUE(says(error.what(), {"cuDeviceGet failed: CUDA_ERROR_INVALID_DEVICE (101): invalid device ordinal"}));
  }
  const CudaError unknown = driver.error_of(12345, &DriverApi::event_record);
  EXPECT_EQ(unknown.code(), 12345);
  EXPECT_EQ(unknown.name(), "");
  EXPECT_EQ(unknown.call(), "cuEventRecord");
  EXPECT_TRUE(says(unknown.what(), {"cuEventRecord failed: unknown error (12345)"}));
}

TEST_F(DriverTest, every_place_of_the_table_has_its_own_name) {
  const Driver driver = load();
  EXPECT_EQ(driver.error_of(1, &DriverApi::init).call(), "cuInit");
  EXPECT_EQ(driver.error_of(1, &DriverApi::context_push).call(), "cuCtxPushCurrent");
  EXPECT_EQ(driver.error_of(1, &DriverApi::stream_wait_event).call(), "cuStreamWaitEvent");
  EXPECT_EQ(driver.error_of(1, &DriverApi::memory_host_register).call(), "cuMemHostRegister");
  EXPECT_EQ(driver.error_of(1, &DriverApi::memory_copy_to_device_async).call(), "cuMemcpyHtoDAsync");
  EXPECT_EQ(driver.error_of(1, &DriverApi::thread_exchange_capture_mode).call(), "cuThreadExchangeStreamCaptureMode");
  EXPECT_EQ(std::size(kSymbols) * sizeof(void*), sizeof(DriverApi));
}

TEST_F(DriverTest, the_one_of_the_process_is_loaded_once) {
  const Driver& driver = Driver::get();
  EXPECT_TRUE(driver.ready()) << driver.explanation();
  standin_restore();
  EXPECT_EQ(&Driver::get(), &driver);
  EXPECT_EQ(standin_calls(), 0U);
}

}  // namespace
}  // namespace pyecho::cuda
