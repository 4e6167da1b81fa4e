// The CUDA layer on the stand-in driver, with two devices.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/memory/host_memory.hpp"
#include "cuda/device.hpp"
#include "cuda/pinning.hpp"
#include "extra_api.hpp"
#include "standin.h"

extern "C" int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                   int* symbol_status);

namespace pyecho::cuda {

inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kUnknown = 999;

inline std::string standin_path() {
  Dl_info info{};
  EXPECT_NE(dladdr(reinterpret_cast<const void*>(&standin_restore), &info), 0);
  return info.dli_fname;
}

// Runs before the driver is loaded.
class StandInEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    setenv("PYECHO_CUDA_DRIVER", standin_path().c_str(), 1);
    setenv("PYECHO_STANDIN_DEVICES", "2", 1);
    standin_restore();
    testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
};
inline testing::Environment* const kEnvironment = testing::AddGlobalTestEnvironment(new StandInEnvironment);

// Functions that act as the user's program.
inline const standin::ExtraApi& extra_api() {
  static const standin::ExtraApi api = [] {
    standin::ExtraApi loaded{};
    for (const Symbol& symbol : standin::kExtraSymbols) {
      void* function = nullptr;
      int status = kSymbolFound;
      EXPECT_EQ(cuGetProcAddress_v2(symbol.name, &function, symbol.version, kProcAddressLegacyStream, &status), 0);
      std::memcpy(reinterpret_cast<std::byte*>(&loaded) + symbol.offset, static_cast<const void*>(&function),
                  sizeof(function));
    }
    return loaded;
  }();
  return api;
}

// True if a message has all of these parts.
inline testing::AssertionResult says(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
    }
  }
  return testing::AssertionSuccess();
}

inline DevicePointer device_pointer(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

inline StreamHandle new_stream(const Device& device) {
  const CurrentContext current(device);
  StreamHandle stream = nullptr;
  device.driver().call(&DriverApi::stream_create, &stream, kStreamNonBlocking);
  return stream;
}

// Page-aligned memory of `size_bytes`, pinned during its lifetime.
class PinnedBuffer {
 public:
  PinnedBuffer(const Device& device, std::size_t size_bytes)
      : memory_(size_bytes), pages_(pin_pages(device, memory_.data(), memory_.size_bytes())) {}
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return memory_.size_bytes(); }

 private:
  HostMemory memory_;
  std::shared_ptr<void> pages_;
};

// Runs `body` in a child made by fork(). Returns its result, or -1 if it crashed.
template <class Body>
int in_forked_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Resets the counts of the stand-in before each test, and checks that the test leaves nothing behind.
class CudaTest : public testing::Test {
 protected:
  CudaTest() : device((standin_restore(), Device::get(0))) {
    standin_restore();
    live_events_ = standin_live_events();
    registered_ranges_ = standin_registered_ranges();
  }
  ~CudaTest() override {
    EXPECT_EQ(standin_violations(), 0U) << standin_last_violation();
    standin_restore();
    EXPECT_EQ(new_live_events(), 0);
    EXPECT_EQ(new_registered_ranges(), 0);
  }

  // Made since the test began.
  [[nodiscard]] std::int64_t new_live_events() const {
    return static_cast<std::int64_t>(standin_live_events()) - static_cast<std::int64_t>(live_events_);
  }
  [[nodiscard]] std::int64_t new_registered_ranges() const {
    return static_cast<std::int64_t>(standin_registered_ranges()) - static_cast<std::int64_t>(registered_ranges_);
  }

  const Device& device;

 private:
  std::uint64_t live_events_ = 0;
  std::uint64_t registered_ranges_ = 0;
};

}  // namespace pyecho::cuda
