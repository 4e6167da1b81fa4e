#include "memory.hpp"

#include <algorithm>
#include <iterator>

namespace pyecho::standin {

bool RegisteredRanges::overlaps(const std::byte* data, std::size_t size_bytes) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return overlap(reinterpret_cast<const std::byte*>(range.first), range.second, data, size_bytes);
  });
}

bool RegisteredRanges::cover(const std::byte* data, std::size_t size_bytes) const {
  std::uintptr_t at = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t end = at + size_bytes;
  while (at < end) {
    const auto after = ranges_.upper_bound(at);
    if (after == ranges_.begin()) {
      return false;
    }
    const auto [begin, size] = *std::prev(after);
    if (at >= begin + size) {
      return false;
    }
    at = begin + size;
  }
  return true;
}

std::size_t RegisteredRanges::size_of(const std::byte* data) const {
  const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(data));
  return found == ranges_.end() ? 0 : found->second;
}

void RegisteredRanges::add(const std::byte* data, std::size_t size_bytes) {
  ranges_.emplace(reinterpret_cast<std::uintptr_t>(data), size_bytes);
  size_bytes_ += size_bytes;
}

void RegisteredRanges::remove(const std::byte* data) {
  size_bytes_ -= size_of(data);
  ranges_.erase(reinterpret_cast<std::uintptr_t>(data));
}

}  // namespace pyecho::standin
