// The machine's memory, cores and nodes, as far as this process may use them. Its control groups (version 2 or 1) and its CPU set count where they allow
// less. A container may see the machine's list of groups and only its own part of their tree: what is missing is passed
// over. `root`: a folder that stands for "/", in tests.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pyecho {

// Returns the least memory that the process's group and those above it allow; the largest number without a limit.
[[nodiscard]] std::size_t cgroup_bytes(const std::string& root = "") noexcept;
// Returns how many cores' time they allow, rounded up; the largest number without a limit.
[[nodiscard]] std::size_t cgroup_cores(const std::string& root = "") noexcept;
// Returns the numbers of the NUMA nodes that may give memory, ascending; empty if the system does not tell.
[[nodiscard]] std::vector<unsigned> memory_nodes(const std::string& root = "");

// Returns the memory that this process may have, swap included. Read once.
[[nodiscard]] std::size_t machine_bytes() noexcept;
// Returns the number of cores that this process may use, at least 1. Groups are read once, the CPU set each time.
[[nodiscard]] std::size_t machine_cores() noexcept;

}  // namespace pyecho
