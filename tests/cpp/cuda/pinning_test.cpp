#include "cuda/pinning.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "fixture.hpp"

namespace pyecho::cuda {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

// Address space with pages that are never touched.
class Reserved {
 public:
  explicit Reserved(std::size_t size_bytes)
      : size_bytes_(size_bytes),
        data_(static_cast<std::byte*>(
            mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    EXPECT_NE(static_cast<void*>(data_), MAP_FAILED);
  }
  ~Reserved() { munmap(data_, size_bytes_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  std::size_t size_bytes_;
  std::byte* data_;
};

class PinnedPagesTest : public CudaTest {
 protected:
  bool pinned(const std::byte* data) const {
    const CurrentContext current(device);
    return is_pinned(device.driver(), data);
  }
};

TEST_F(PinnedPagesTest, memory_is_pinned_from_its_first_to_its_last_byte) {
  const HostMemory memory(3 * 4096);
  EXPECT_FALSE(pinned(memory.data()));
  {
    const auto pages = pin_pages(device, memory.data(), memory.size_bytes());
    EXPECT_TRUE(pinned(memory.data()));
    EXPECT_TRUE(pinned(memory.data() + memory.size_bytes() - 1));
    EXPECT_FALSE(pinned(memory.data() + memory.size_bytes()));
    EXPECT_FALSE(pinned(memory.data() - 1));
  }
  EXPECT_FALSE(pinned(memory.data()));
}

TEST_F(PinnedPagesTest, memory_of_the_device_is_not_taken_for_pinned_memory) {
  const CurrentContext current(device);
  DevicePointer pointer = 0;
  ASSERT_EQ(extra_api().memory_allocate(&pointer, 100), kSuccess);
  EXPECT_FALSE(is_pinned(device.driver(), reinterpret_cast<const void*>(pointer)));
  EXPECT_EQ(extra_api().memory_free(pointer), kSuccess);
}

TEST_F(PinnedPagesTest, large_memory_is_registered_in_pieces) {
  const Reserved memory(2 * kGiB + kGiB / 2);
  const std::uint64_t before = standin_registered_bytes();
  {
    const auto pages = pin_pages(device, memory.data(), memory.size_bytes());
    EXPECT_EQ(standin_calls_of("cuMemHostRegister"), 3U);
    EXPECT_EQ(new_registered_ranges(), 3);
    EXPECT_EQ(standin_registered_bytes() - before, memory.size_bytes());
    EXPECT_TRUE(pinned(memory.data() + kPinnedPieceBytes - 1));
    EXPECT_TRUE(pinned(memory.data() + kPinnedPieceBytes));
    EXPECT_TRUE(pinned(memory.data() + memory.size_bytes() - 1));
  }
  EXPECT_EQ(standin_calls_of("cuMemHostUnregister"), 3U);
  EXPECT_EQ(new_registered_ranges(), 0);
}

TEST_F(PinnedPagesTest, a_failure_at_any_piece_leaves_nothing_registered) {
  const Reserved memory(2 * kGiB + kGiB / 2);
  for (const std::uint64_t piece : {1U, 2U, 3U}) {
    standin_restore();
    standin_fail_call("cuMemHostRegister", piece, kOutOfMemory, 0);
    try {
      const auto pages = pin_pages(device, memory.data(), memory.size_bytes());
      ADD_FAILURE() << "registered in spite of a failure";
    } catch (const CudaError& error) {
      EXPECT_EQ(error.code(), kOutOfMemory);
      EXPECT_EQ(error.name(), "CUDA_ERROR_OUT_OF_MEMORY");
      EXPECT_EQ(error.call(), "cuMemHostRegister");
    }
    EXPECT_EQ(new_registered_ranges(), 0);
    EXPECT_EQ(standin_calls_of("cuMemHostUnregister"), piece - 1);
  }
}

TEST_F(PinnedPagesTest, a_failed_unregistration_harms_nobody) {
  const Reserved memory(2 * kGiB);
  standin_fail_call("cuMemHostUnregister", 1, kUnknown, 0);
  {
    const auto pages = pin_pages(device, memory.data(), memory.size_bytes());
  }
  EXPECT_EQ(new_registered_ranges(), 1) << "the other piece is to be unregistered all the same";
  const CurrentContext current(device);
  device.driver().call(&DriverApi::memory_host_unregister, static_cast<void*>(memory.data()));
}

TEST_F(PinnedPagesTest, they_come_and_go_while_another_thread_captures) {
  const HostMemory memory(4096);
  standin_begin_capture();
  {
    const auto pages = pin_pages(device, memory.data(), memory.size_bytes());
  }
  EXPECT_EQ(standin_end_capture(), kSuccess);
}

TEST_F(PinnedPagesTest, in_a_forked_child_they_end_without_the_driver) {
  const HostMemory memory(4096);
  auto pages = pin_pages(device, memory.data(), memory.size_bytes());
  EXPECT_EQ(in_forked_child([&] {
              const std::uint64_t calls = standin_calls();
              pages.reset();
              return standin_calls() == calls ? 0 : 1;
            }),
            0);
  EXPECT_EQ(new_registered_ranges(), 1);
}

void end_the_driver_before_the_pages() {
  const Device& device = Device::get(0);
  const HostMemory memory(4096);
  auto pages = pin_pages(device, memory.data(), memory.size_bytes());
  standin_deinitialize();
  pages.reset();
  std::exit(standin_calls_of("cuMemHostUnregister") == 0 ? 0 : 1);
}

TEST(PinnedPagesDeathTest, after_the_drivers_end_they_end_without_it) {
  EXPECT_EXIT(end_the_driver_before_the_pages(), testing::ExitedWithCode(0), "");
}

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

}  // namespace
}  // namespace pyecho::cuda
