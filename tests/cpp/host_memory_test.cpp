#include "core/host_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace pyecho {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::uintptr_t address(const HostMemory& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); }

TEST(HostMemory, sizes_are_rounded_up_to_pages) {
  EXPECT_EQ(HostMemory::rounded_bytes(1), page());
  EXPECT_EQ(HostMemory::rounded_bytes(page()), page());
  EXPECT_EQ(HostMemory::rounded_bytes(page() + 1), 2 * page());
  EXPECT_EQ(HostMemory(1, 1).size_bytes(), page());
  EXPECT_EQ(HostMemory(kHugePage + 1, 1).size_bytes(), kHugePage + page());
}

TEST(HostMemory, is_zeroed_aligned_and_writable_to_its_end) {
  for (const std::size_t size : {std::size_t{1}, 3 * page(), kHugePage - 1, kHugePage, 5 * kHugePage + 7}) {
    for (const unsigned threads : {0U, 1U, 3U}) {
      const HostMemory memory(size, threads);
      const std::byte* const end = memory.data() + memory.size_bytes();
      EXPECT_EQ(std::count(static_cast<const std::byte*>(memory.data()), end, std::byte{0}),
                static_cast<std::ptrdiff_t>(memory.size_bytes()));
      EXPECT_EQ(address(memory) % (memory.size_bytes() >= kHugePage ? kHugePage : page()), 0U);
      std::fill(memory.data(), memory.data() + memory.size_bytes(), std::byte{1});
    }
  }
}

TEST(HostMemory, several_threads_may_touch_it) {
  const HostMemory memory(100 * kHugePage + 1, 4);
  EXPECT_EQ(memory.data()[memory.size_bytes() - 1], std::byte{0});
}

TEST(HostMemory, moves_without_a_copy) {
  HostMemory first(10, 1);
  std::byte* const data = first.data();
  HostMemory second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.size_bytes(), 0U);
  HostMemory third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
}

TEST(HostMemory, mappings_are_counted) {
  const std::uint64_t before = HostMemory::allocations();
  const HostMemory none;
  const HostMemory one(1, 1);
  const HostMemory two(kHugePage, 2);
  EXPECT_EQ(HostMemory::allocations(), before + 2);
}

TEST(HostMemory, more_than_there_is_throws) {
  EXPECT_THROW(HostMemory(std::size_t{1} << 60, 1), std::bad_alloc);
  EXPECT_THROW(HostMemory(std::numeric_limits<std::size_t>::max() / 2, 1), std::bad_alloc);
}

}  // namespace
}  // namespace pyecho
