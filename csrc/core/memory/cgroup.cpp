#include "core/memory/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <limits>

namespace pyecho {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// Returns the least number in the files of this name from a folder up to the root.
std::size_t least_up(const std::string& root, std::string path, const std::string& name) {
  std::size_t least = kNone;
  for (bool more = true; more;) {
    std::size_t limit = 0;
    std::string file = root;
    file.append(path).append("/").append(name);
    if (std::ifstream(file) >> limit) {  // "max": no number
      least = std::min(least, limit);
    }
    more = !path.empty();
    path.resize(path.empty() ? 0 : path.rfind('/'));
  }
  return least;
}

}  // namespace

std::size_t cgroup_bytes(const std::string& groups, const std::string& root) noexcept {
  std::size_t least = kNone;
  try {
    std::ifstream lines(groups);
    for (std::string line; std::getline(lines, line);) {  // "4:memory:/path", or of version 2 "0::/path"
      const std::size_t first = line.find(':');
      const std::size_t second = line.find(':', first + 1);
      if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) {
        continue;
      }
      const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
      const std::string path = line.substr(second + 1);
      if (controllers == ",,") {
        least = std::min(least, least_up(root, path, "memory.max"));
      } else if (controllers.find(",memory,") != std::string::npos) {
        least = std::min(least, least_up(root + "/memory", path, "memory.limit_in_bytes"));
      }
    }
  } catch (const std::exception&) {  // no memory for a line
  }
  return least;
}

}  // namespace pyecho
