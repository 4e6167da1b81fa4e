#include "core/memory/machine.hpp"

#ifdef __linux__
#include <sched.h>
#include <sys/sysinfo.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

namespace pyecho {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// Returns the number in a file, kNone if it has none, such as "max" or "-1".
std::size_t number_in(const std::string& file) {
  long long number = 0;
  return std::ifstream(file) >> number && number >= 0 ? static_cast<std::size_t>(number) : kNone;
}

std::size_t rounded_up(std::size_t quota, std::size_t period) {
  return quota == kNone || period == kNone || period == 0 ? kNone
                                                          : std::max<std::size_t>(1, (quota + period - 1) / period);
}

std::size_t bytes_of_2(const std::string& group) { return number_in(group + "/memory.max"); }
std::size_t bytes_of_1(const std::string& group) { return number_in(group + "/memory.limit_in_bytes"); }

std::size_t cores_of_2(const std::string& group) {
  std::size_t quota = kNone;
  std::size_t period = kNone;
  return std::ifstream(group + "/cpu.max") >> quota >> period ? rounded_up(quota, period) : kNone;
}
std::size_t cores_of_1(const std::string& group) {
  return rounded_up(number_in(group + "/cpu.cfs_quota_us"), number_in(group + "/cpu.cfs_period_us"));
}

// Returns the least limit of the process's groups of a controller, and of those above them.
template <class OfGroup>
std::size_t least_of_groups(const std::string& root, const std::string& controller, OfGroup of_2,
                            OfGroup of_1) noexcept {
  std::size_t least = kNone;
  try {
    std::ifstream lines(root + "/proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {  // "4:memory:/path", or of version 2 "0::/path"
      const std::size_t first = line.find(':');
      const std::size_t second = line.find(':', first + 1);
      if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) {
        continue;
      }
      const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
      const bool version_2 = controllers == ",,";
      if (!version_2 && controllers.find("," + controller + ",") == std::string::npos) {
        continue;
      }
      std::string path = line.substr(second + 1);
      for (bool more = true; more;) {
        const std::string mount = root + "/sys/fs/cgroup" + (version_2 ? "" : "/" + controller);
        least = std::min(least, (version_2 ? of_2 : of_1)(mount + path));
        more = !path.empty();
        path.resize(path.empty() ? 0 : path.rfind('/'));
      }
    }
  } catch (const std::exception&) {  // no memory for a line
  }
  return least;
}

}  // namespace

std::size_t cgroup_bytes(const std::string& root) noexcept {
  return least_of_groups(root, "memory", bytes_of_2, bytes_of_1);
}

std::size_t cgroup_cores(const std::string& root) noexcept {
  return least_of_groups(root, "cpu", cores_of_2, cores_of_1);
}

std::vector<unsigned> memory_nodes(const std::string& root) {
  std::vector<unsigned> nodes;
  std::ifstream lines(root + "/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    const std::string name = "Mems_allowed_list:";
    if (!line.starts_with(name)) {
      continue;
    }
    std::istringstream ranges(line.substr(name.size()));  // such as "0-1,4"
    for (std::string range; std::getline(ranges, range, ',');) {
      std::istringstream text(range);
      unsigned first = 0;
      if (text >> first) {
        unsigned last = first;
        if (text.get() == '-') {
          text >> last;
        }
        for (; first <= last; ++first) {
          nodes.push_back(first);
        }
      }
    }
  }
  return nodes;
}

std::size_t machine_bytes() noexcept {
#ifdef __linux__
  struct sysinfo machine{};
  if (sysinfo(&machine) == 0) {
    static const std::size_t limit = cgroup_bytes();
    const std::size_t swap = machine.totalswap * machine.mem_unit;
    return std::min(machine.totalram * machine.mem_unit, limit) + swap;
  }
#endif
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : kNone;
}

std::size_t machine_cores() noexcept {
  static const std::size_t limit = cgroup_cores();
  std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {  // fails with more than 1,024 cores
    cores = static_cast<std::size_t>(CPU_COUNT(&set));
  }
#endif
  return std::min(cores, limit);
}

}  // namespace pyecho
