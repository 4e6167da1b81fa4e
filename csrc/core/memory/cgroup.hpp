// The memory that control groups of Linux allow this process.
#pragma once

#include <cstddef>
#include <string>

namespace pyecho {

// Returns the least limit of the process's group and those above it, of version 2 (memory.max) or 1; the largest number
// if there is none, or it cannot be read. `groups`: where the process's groups are listed. `root`: where they are
// mounted. A container may see the list of the machine and only its own part of the groups: what is missing is passed
// over.
[[nodiscard]] std::size_t cgroup_bytes(const std::string& groups = "/proc/self/cgroup",
                                       const std::string& root = "/sys/fs/cgroup") noexcept;

}  // namespace pyecho
