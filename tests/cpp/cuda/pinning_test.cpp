#include "cuda/pinning.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "fixture.hpp"

namespace pyecho::cuda {
namespace {

using PinningTest = CudaTest;

std::shared_ptr<Pinning> new_pinning(const Device& device, bool required) {
  return std::make_shared<Pinning>(device, required);
}

TEST_F(PinningTest, memory_is_registered_as_long_as_it_lives) {
  const auto pinning = new_pinning(device, true);
  {
    const HostMemory memory(100, pinning->policy());
    EXPECT_EQ(new_registered_ranges(), 1);
    EXPECT_EQ(pinning->pinned_bytes(), memory.size_bytes());
    EXPECT_GT(pinning->pinning_ns(), 0U);
    EXPECT_EQ(pinning->failure(), "");
  }
  EXPECT_EQ(new_registered_ranges(), 0);
}

TEST_F(PinningTest, the_policy_keeps_it_and_names_the_devices_node) {
  standin_set_numa_node(0);
  PagePolicy policy = new_pinning(device, true)->policy();
  EXPECT_EQ(policy.numa_node, 0);
  EXPECT_GE(policy.threads, 1U);
  const HostMemory memory(100, policy);
  EXPECT_EQ(new_registered_ranges(), 1);
}

TEST_F(PinningTest, memory_is_unregistered_before_it_is_unmapped) {
  PagePolicy policy = new_pinning(device, true)->policy();
  bool in_order = false;
  policy.prepare = [&, pin = policy.prepare](std::byte* data, std::size_t size_bytes) {
    std::shared_ptr<void> pages = pin(data, size_bytes);
    data[size_bytes - 1] = std::byte{42};
    return std::shared_ptr<void>(nullptr, [&, pages, data, size_bytes](void*) mutable {
      pages.reset();
      in_order = new_registered_ranges() == 0 && data[size_bytes - 1] == std::byte{42};  // mapped still
    });
  };
  {
    const HostMemory memory(100, policy);
  }
  EXPECT_TRUE(in_order);
}

TEST_F(PinningTest, where_it_is_required_a_failure_is_an_error_and_leaves_nothing) {
  const auto pinning = new_pinning(device, true);
  standin_set_register_limit(0);
  try {
    const HostMemory memory(100, pinning->policy());
    ADD_FAILURE() << "pinned in spite of the limit";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.call(), "cuMemHostRegister");
    EXPECT_EQ(error.code(), kOutOfMemory);
  }
  EXPECT_EQ(pinning->pinned_bytes(), 0U);
  EXPECT_EQ(pinning->failure(), "");
}

TEST_F(PinningTest, where_it_is_not_required_memory_stays_pageable_and_the_first_reason_is_told) {
  const auto pinning = new_pinning(device, false);
  standin_fail_call("cuMemHostRegister", 1, kOutOfMemory, 0);
  const HostMemory first(100, pinning->policy());
  ASSERT_NE(first.data(), nullptr);
  first.data()[99] = std::byte{1};
  EXPECT_TRUE(says(pinning->failure(), {"cuMemHostRegister failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"}));
  EXPECT_EQ(pinning->pinned_bytes(), 0U);

  standin_fail_call("cuCtxPushCurrent", 1, kUnknown, 0);
  const HostMemory second(100, pinning->policy());
  EXPECT_TRUE(says(pinning->failure(), {"cuMemHostRegister"})) << "the first reason";
  EXPECT_EQ(new_registered_ranges(), 0);

  const HostMemory third(100, pinning->policy());
  EXPECT_EQ(new_registered_ranges(), 1) << "each is tried anew";
  EXPECT_EQ(pinning->pinned_bytes(), third.size_bytes());
}

TEST_F(PinningTest, a_limit_pins_what_it_allows) {
  const auto pinning = new_pinning(device, false);
  standin_set_register_limit(standin_registered_bytes() + HostMemory::rounded_bytes(1));
  const HostMemory first(1, pinning->policy());
  EXPECT_EQ(pinning->failure(), "");
  const HostMemory second(1, pinning->policy());
  EXPECT_NE(pinning->failure(), "");
  EXPECT_EQ(new_registered_ranges(), 1);
}

TEST_F(PinningTest, threads_may_pin_at_the_same_time) {
  const auto pinning = new_pinning(device, false);
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&, number] {
        for (int round = 0; round < 50; ++round) {
          if (number == 0 && round % 10 == 0) {
            standin_fail_call("cuMemHostRegister", 1, kOutOfMemory, 0);
          }
          const HostMemory memory(100, pinning->policy());
          static_cast<void>(pinning->failure());
          static_cast<void>(pinning->pinned_bytes());
        }
      });
    }
  }
  standin_fail_call(nullptr, 0, 0, 0);
  EXPECT_EQ(new_registered_ranges(), 0);
  EXPECT_EQ(standin_calls_of("cuMemHostRegister"), 200U);
}

TEST_F(PinningTest, in_a_forked_child_nothing_reaches_the_driver) {
  const auto pinning = new_pinning(device, false);
  const auto required = new_pinning(device, true);
  auto memory = std::make_unique<HostMemory>(100, pinning->policy());
  EXPECT_EQ(in_forked_child([&] {
              const std::uint64_t calls = standin_calls();
              memory.reset();
              const HostMemory pageable(100, pinning->policy());
              try {
                const HostMemory never(100, required->policy());
                return 1;
              } catch (const CudaError&) {
              }
              const bool told = pinning->failure().find("fork()") != std::string::npos;
              return told && standin_calls() == calls ? 0 : 2;
            }),
            0);
}

void end_the_driver_before_the_memory() {
  const Device& device = Device::get(0);
  const auto pinning = new_pinning(device, false);
  auto memory = std::make_unique<HostMemory>(100, pinning->policy());
  standin_deinitialize();
  memory.reset();
  const HostMemory pageable(100, pinning->policy());
  std::exit(pinning->failure().find("CUDA_ERROR_DEINITIALIZED") != std::string::npos ? 0 : 1);
}

TEST(PinningDeathTest, after_the_drivers_end_memory_is_pageable) {
  EXPECT_EXIT(end_the_driver_before_the_memory(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
