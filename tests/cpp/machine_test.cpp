#include "core/memory/machine.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace pyecho {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// A folder of files that stand for those of the kernel.
class Machine : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/machine.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void groups(const std::string& lines) const { write("/proc/self/cgroup", lines); }
  void limit(const std::string& file, const std::string& text) const { write("/sys/fs/cgroup" + file, text); }
  [[nodiscard]] std::size_t bytes() const { return cgroup_bytes(root_); }
  [[nodiscard]] std::size_t cores() const { return cgroup_cores(root_); }

  std::string root_;
};

TEST_F(Machine, has_the_least_limit_of_its_groups_up_to_the_root) {
  groups("0::/a/b\n");
  limit("/a/b/memory.max", "max\n");
  limit("/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(bytes(), kNoLimit);
  EXPECT_EQ(cores(), kNoLimit);
  limit("/a/memory.max", "4000\n");
  limit("/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(bytes(), 4000U);
  EXPECT_EQ(cores(), 4U);
  limit("/a/b/memory.max", "5000\n");
  limit("/a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(bytes(), 4000U);
  EXPECT_EQ(cores(), 4U);
  limit("/a/b/memory.max", "300\n");
  limit("/a/b/cpu.max", "1000 100000\n");
  EXPECT_EQ(bytes(), 300U);
  EXPECT_EQ(cores(), 1U);
}

TEST_F(Machine, counts_groups_of_the_first_version) {
  groups("5:cpu,cpuacct:/x\n4:hugetlb,memory:/y\n0::/\n");
  limit("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  limit("/memory/x/memory.limit_in_bytes", "1\n");
  limit("/memory/y/memory.limit_in_bytes", "700\n");
  limit("/cpu/y/cpu.cfs_quota_us", "1\n");
  limit("/cpu/cpu.cfs_quota_us", "-1\n");
  limit("/cpu/cpu.cfs_period_us", "100000\n");
  limit("/cpu/x/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(cores(), kNoLimit);
  limit("/cpu/x/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(bytes(), 700U);
  EXPECT_EQ(cores(), 2U);
}

TEST_F(Machine, passes_over_groups_that_a_container_does_not_see) {
  groups("0::/machine/container\n");
  limit("/memory.max", "800\n");
  EXPECT_EQ(bytes(), 800U);
}

TEST_F(Machine, has_no_limit_that_cannot_be_read) {
  EXPECT_EQ(bytes(), kNoLimit);
  groups("nonsense\n0\n1:memory\n0::relative\n0::/../..\n");
  limit("/memory.max", "many\n");
  limit("/cpu.max", "7\n");
  EXPECT_EQ(bytes(), kNoLimit);
  EXPECT_EQ(cores(), kNoLimit);
  groups("0::/\n");
  limit("/cpu.max", "7 0\n");
  EXPECT_EQ(cores(), kNoLimit);
}

TEST_F(Machine, has_the_nodes_that_its_cpu_set_allows) {
  EXPECT_TRUE(memory_nodes(root_).empty());
  write("/proc/self/status", "Name:\tx\nMems_allowed:\t7\nMems_allowed_list:\t0-1,4,6-7\nSeccomp:\t0\n");
  EXPECT_EQ(memory_nodes(root_), (std::vector<unsigned>{0, 1, 4, 6, 7}));
  write("/proc/self/status", "Mems_allowed_list:\t\n");
  EXPECT_TRUE(memory_nodes(root_).empty());
}

TEST(ThisMachine, has_a_core_and_memory) {
  EXPECT_GE(machine_cores(), 1U);
  EXPECT_GT(machine_bytes(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace pyecho
