#include "core/memory/host_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/cgroup.hpp"

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

// A folder of files that stand for those of the kernel.
class Cgroups : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/cgroups.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::size_t limit() const { return cgroup_bytes(root_ + "/groups", root_); }

  std::string root_;
};

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

TEST_F(Cgroups, the_least_limit_up_to_the_root_counts) {
  write("/groups", "0::/a/b\n");
  write("/a/b/memory.max", "max\n");
  EXPECT_EQ(limit(), kNoLimit);
  write("/a/memory.max", "4000\n");
  EXPECT_EQ(limit(), 4000U);
  write("/a/b/memory.max", "5000\n");
  EXPECT_EQ(limit(), 4000U);
  write("/a/b/memory.max", "300\n");
  EXPECT_EQ(limit(), 300U);
}

TEST_F(Cgroups, of_the_first_version_count_as_well) {
  write("/groups", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/y\n0::/\n");
  write("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/memory/x/memory.limit_in_bytes", "1\n");
  write("/memory/y/memory.limit_in_bytes", "700\n");
  EXPECT_EQ(limit(), 700U);
}

TEST_F(Cgroups, what_a_container_does_not_see_is_passed_over) {
  write("/groups", "0::/machine/container\n");
  write("/memory.max", "800\n");
  EXPECT_EQ(limit(), 800U);
}

TEST_F(Cgroups, what_cannot_be_read_is_no_limit) {
  EXPECT_EQ(limit(), kNoLimit);
  write("/groups", "nonsense\n0\n1:memory\n0::relative\n0::/../..\n");
  write("/memory.max", "many\n");
  EXPECT_EQ(limit(), kNoLimit);
}

}  // namespace
}  // namespace pyecho
