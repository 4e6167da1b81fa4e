#include "core/memory/host_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#ifdef __linux__
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#endif
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <limits>
#include <memory>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "core/memory/machine.hpp"

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
    const HostMemory memory(size);
    const std::byte* const end = memory.data() + memory.size_bytes();
    EXPECT_EQ(std::count(static_cast<const std::byte*>(memory.data()), end, std::byte{0}),
              static_cast<std::ptrdiff_t>(memory.size_bytes()));
    EXPECT_EQ(address(memory) % (memory.size_bytes() >= kHugePage ? kHugePage : page()), 0U);
    std::fill(memory.data(), memory.data() + memory.size_bytes(), std::byte{1});
  }
}

TEST(HostMemory, shared_memory_is_zeroed_and_seen_through_every_mapping_of_this_user_only) {
  for (const std::size_t size : {std::size_t{1}, kHugePage + 1}) {
    const HostMemory memory = HostMemory::shared(size);
    EXPECT_EQ(memory.size_bytes(), HostMemory::rounded_bytes(size));
    EXPECT_TRUE(std::all_of(memory.data(), memory.data() + memory.size_bytes(),
                            [](std::byte each) { return each == std::byte{0}; }));
    struct stat file{};
    ASSERT_EQ(fstat(memory.descriptor(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777U, 0600U);
    const HostMemory other = HostMemory::mapped(memory.descriptor(), size);
    EXPECT_NE(other.descriptor(), memory.descriptor());
    other.data()[size - 1] = std::byte{7};
    EXPECT_EQ(memory.data()[size - 1], std::byte{7});
  }
  EXPECT_THROW(static_cast<void>(HostMemory::mapped(-1, 1)), std::bad_alloc);
  EXPECT_EQ(HostMemory(1).descriptor(), -1);
}

#ifdef __linux__
TEST(HostMemory, sparse_memory_has_the_pages_that_are_used) {
  const HostMemory memory = HostMemory::shared(std::size_t{1} << 33U, true);
  const HostMemory other = HostMemory::mapped(memory.descriptor(), std::size_t{1} << 33U, true);
  const auto pages = [&] {
    struct stat file{};
    EXPECT_EQ(fstat(memory.descriptor(), &file), 0);
    return static_cast<std::size_t>(file.st_blocks) * 512 / page();
  };
  const std::vector<std::byte> from(10 * page(), std::byte{3});
  std::byte* const to = other.data() + (std::size_t{1} << 32U) + 100;
  EXPECT_EQ(pages(), 0U);
  EXPECT_TRUE(other.copy_in(to, from.data(), from.size(), true));
  EXPECT_EQ(pages(), 11U);
  EXPECT_TRUE(other.copy_in(to + 1, from.data(), from.size(), false));
  EXPECT_EQ(pages(), 11U);
  const std::byte* const seen = memory.data() + (to - other.data());
  EXPECT_EQ(std::count(seen, seen + from.size() + 1, std::byte{3}), static_cast<std::ptrdiff_t>(from.size() + 1));
  HostMemory::drop_pages(to, 10 * page());
  EXPECT_EQ(pages(), 2U);
  EXPECT_EQ(seen[0], std::byte{3});
  HostMemory::drop_pages(to, 10);
  EXPECT_EQ(pages(), 2U);
  EXPECT_EQ(seen[page()], std::byte{0});
}

TEST(HostMemory, a_limit_of_files_is_no_lack_of_memory) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low{.rlim_cur = page(), .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &low);
  EXPECT_THROW(static_cast<void>(HostMemory::shared(2 * page())), std::system_error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
}

TEST(HostMemory, shared_memory_cannot_be_cut_short_nor_grow) {
  const HostMemory memory = HostMemory::shared(page());
  EXPECT_NE(ftruncate(memory.descriptor(), 0), 0);
  EXPECT_NE(ftruncate(memory.descriptor(), static_cast<off_t>(2 * page())), 0);
  EXPECT_NE(fcntl(memory.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  memory.data()[page() - 1] = std::byte{1};
}
#endif

TEST(HostMemory, memory_of_another_allocator_is_let_go_by_its_last_holder) {
  auto bytes = std::make_shared<std::vector<std::byte>>(100);
  HostMemory memory(bytes->data(), bytes->size(), bytes);
  EXPECT_EQ(memory.data(), bytes->data());
  EXPECT_EQ(memory.size_bytes(), 100U);
  EXPECT_EQ(memory.owner(), bytes.get());
  HostMemory kept(std::move(memory));
  EXPECT_EQ(memory.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  const std::weak_ptr<std::vector<std::byte>> observer = bytes;
  bytes.reset();
  kept.data()[99] = std::byte{1};
  EXPECT_FALSE(observer.expired());
  kept = HostMemory(1);
  EXPECT_TRUE(observer.expired());
  EXPECT_EQ(kept.owner(), nullptr);
}

TEST(HostMemory, more_than_there_is_throws) {
  EXPECT_THROW(HostMemory(std::size_t{1} << 60), std::bad_alloc);
  EXPECT_THROW(HostMemory(std::numeric_limits<std::size_t>::max() / 2), std::bad_alloc);
}

#ifdef __linux__
// Returns the policy of the page at an address, and its nodes as bits.
std::pair<int, unsigned long> policy_of(const std::byte* page) {
  int mode = -1;
  std::array<unsigned long, 16> nodes{};
  EXPECT_EQ(syscall(SYS_get_mempolicy, &mode, nodes.data(), 1025UL, page, MPOL_F_ADDR), 0) << errno;
  return {mode, nodes.front()};
}

TEST(HostMemory, lies_on_the_nodes_that_a_placement_names) {
  const auto ours = policy_of(HostMemory(1, Placement()).data());
  if (testing::Test::HasFailure()) {
    GTEST_SKIP() << "the system does not tell of nodes";
  }
  EXPECT_EQ(ours.first, MPOL_DEFAULT);
  const std::vector<unsigned> nodes = memory_nodes();
  const unsigned node = nodes.front();
  for (const HostMemory& memory :
       {HostMemory(1, Placement::preferred(node)), HostMemory(kHugePage, Placement::preferred(node)),
        HostMemory::shared(1, false, Placement::preferred(node))}) {
    EXPECT_EQ(policy_of(memory.data()), std::pair(int{MPOL_PREFERRED}, 1UL << node));
    EXPECT_EQ(memory.data()[0], std::byte{0});
  }
  EXPECT_EQ(policy_of(HostMemory(1, Placement::interleaved({&node, 1})).data()).first, MPOL_DEFAULT);
  const std::array<unsigned, 2> two{node, 1000};  // the second is not there
  const HostMemory turns(1, Placement::interleaved(two));
  EXPECT_EQ(policy_of(turns.data()), std::pair(int{MPOL_INTERLEAVE}, 1UL << node));
  EXPECT_EQ(HostMemory(1, Placement::preferred(1U << 20)).data()[0], std::byte{0});
}
#endif

}  // namespace
}  // namespace pyecho
