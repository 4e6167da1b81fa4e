// A program that uses the stand-in as it would use the driver.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver_api.hpp"
#include "extra_api.hpp"
#include "standin.h"

extern "C" int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                   int* symbol_status);

namespace pyecho::standin {

using namespace cuda;

inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kNotPermitted = 800;

// Every symbol as its table has it; the test fails if one is refused.
template <class Api, std::size_t kCount>
Api load(const Symbol (&symbols)[kCount], GetProcAddress get_proc_address = &cuGetProcAddress_v2) {
  Api api{};
  for (const Symbol& symbol : symbols) {
    void* function = nullptr;
    int status = -1;
    EXPECT_EQ(get_proc_address(symbol.name, &function, symbol.version, kProcAddressLegacyStream, &status), kSuccess);
    EXPECT_EQ(status, kSymbolFound) << symbol.name;
    EXPECT_NE(function, nullptr) << symbol.name;
    std::memcpy(reinterpret_cast<std::byte*>(&api) + symbol.offset, static_cast<const void*>(&function),
                sizeof(function));
  }
  return api;
}

// Before each test the stand-in is as after loading; each ends with it idle and with nothing forbidden done.
class StandIn : public testing::Test {
 protected:
  StandIn() { standin_reset(); }
  ~StandIn() override {
    EXPECT_EQ(standin_violations(), expected_violations_) << standin_last_violation();
    standin_reset();
  }

  // Initialises, and makes a context current in this thread.
  void start() {
    ASSERT_EQ(cu.init(0), kSuccess);
    ASSERT_EQ(cu.primary_context_retain(&context, 0), kSuccess);
    ASSERT_EQ(cu.context_push(context), kSuccess);
  }
  StreamHandle new_stream() {
    StreamHandle stream = nullptr;
    EXPECT_EQ(cu.stream_create(&stream, kStreamNonBlocking), kSuccess);
    return stream;
  }
  EventHandle new_event() {
    EventHandle event = nullptr;
    EXPECT_EQ(cu.event_create(&event, kEventDisableTiming), kSuccess);
    return event;
  }
  // Registered memory, for as long as the stand-in knows it.
  int* new_pinned(std::size_t count, int value = 0) {
    pinned_.push_back(std::make_unique<std::vector<int>>(count, value));
    int* const data = pinned_.back()->data();
    EXPECT_EQ(cu.memory_host_register(data, count * sizeof(int), kHostRegisterPortable), kSuccess);
    return data;
  }
  static DevicePointer device(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

  const DriverApi cu = load<DriverApi>(kSymbols);
  const ExtraApi extra = load<ExtraApi>(kExtraSymbols);
  ContextHandle context = nullptr;
  std::uint64_t expected_violations_ = 0;

 private:
  std::vector<std::unique_ptr<std::vector<int>>> pinned_;
};

// A stand-in whose streams move only by standin_step().
class HeldStandIn : public StandIn {
 protected:
  void SetUp() override {
    standin_hold(STANDIN_HOLD);
    start();
  }
};

}  // namespace pyecho::standin
