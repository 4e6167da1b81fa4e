// The number of items that the stress tests move.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace pyecho::test {

// Returns PYECHO_STRESS_ITEMS, or `fallback`. A test uses its share of it.
[[nodiscard]] inline std::uint64_t stress_items(std::uint64_t fallback = 4'000'000) {
  const char* const text = std::getenv("PYECHO_STRESS_ITEMS");
  return text == nullptr ? fallback : std::stoull(text);
}

}  // namespace pyecho::test
