#include "core/memory/host_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pyecho {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::uintptr_t address(const HostMemory& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); }

TEST(HostMemory, sizes_are_rounded_up_to_pages) {
  EXPECT_EQ(HostMemory::rounded_bytes(1), page());
  EXPECT_EQ(HostMemory::rounded_bytes(page()), page());
  EXPECT_EQ(HostMemory::rounded_bytes(page() + 1), 2 * page());
  EXPECT_EQ(HostMemory(1).size_bytes(), page());
  EXPECT_EQ(HostMemory(kHugePage + 1).size_bytes(), kHugePage + page());
}

TEST(HostMemory, is_zeroed_aligned_and_writable_to_its_end) {
  for (const std::size_t size : {std::size_t{1}, 3 * page(), kHugePage - 1, kHugePage, 5 * kHugePage + 7}) {
    for (const unsigned threads : {0U, 1U, 3U}) {
      const HostMemory memory(size, {.threads = threads});
      const std::byte* const end = memory.data() + memory.size_bytes();
      EXPECT_EQ(std::count(static_cast<const std::byte*>(memory.data()), end, std::byte{0}),
                static_cast<std::ptrdiff_t>(memory.size_bytes()));
      EXPECT_EQ(address(memory) % (memory.size_bytes() >= kHugePage ? kHugePage : page()), 0U);
      std::fill(memory.data(), memory.data() + memory.size_bytes(), std::byte{1});
    }
  }
}

TEST(HostMemory, a_wished_node_or_one_that_is_not_there_does_no_harm) {
  for (const int node : {0, 7, 1023, 1 << 20}) {
    EXPECT_EQ(HostMemory(10, {.numa_node = node}).data()[0], std::byte{0});
  }
}

TEST(HostMemory, prepared_pages_stay_so_as_long_as_the_memory_which_moves_without_a_copy) {
  std::vector<std::string> events;
  std::byte* prepared = nullptr;
  const PagePolicy policy = {.prepare = [&](std::byte* data, std::size_t size_bytes) {
    EXPECT_EQ(size_bytes, page());
    data[size_bytes - 1] = std::byte{1};
    prepared = data;
    return std::shared_ptr<void>(data, [&](void*) {
      EXPECT_EQ(prepared[page() - 1], std::byte{1});  // still mapped
      events.emplace_back("ended");
    });
  }};
  HostMemory kept;
  {
    HostMemory memory(10, policy);
    EXPECT_EQ(memory.data(), prepared);
    kept = HostMemory(std::move(memory));
    EXPECT_EQ(memory.data(), nullptr);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(kept.data(), prepared);
  }
  EXPECT_TRUE(events.empty());
  kept = HostMemory();
  EXPECT_EQ(events, std::vector<std::string>{"ended"});
}

TEST(HostMemory, pages_that_cannot_be_prepared_are_given_back) {
  const PagePolicy policy = {
      .prepare = [](std::byte*, std::size_t) -> std::shared_ptr<void> { throw std::runtime_error("no more"); }};
  EXPECT_THROW(HostMemory(10, policy), std::runtime_error);
}

TEST(HostMemory, more_than_there_is_throws) {
  EXPECT_THROW(HostMemory(std::size_t{1} << 60), std::bad_alloc);
  EXPECT_THROW(HostMemory(std::numeric_limits<std::size_t>::max() / 2), std::bad_alloc);
}

}  // namespace
}  // namespace pyecho
