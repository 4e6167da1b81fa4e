// States as values, and forged ones.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "calls.hpp"
#include "core/memory/checksum.hpp"

namespace pyecho::capi_tests {

struct State {
  std::vector<unsigned char> bytes;
  std::uint64_t taken = 0;
};

inline pyecho_status load(pyecho_buffer* buffer, const State& state, std::uint64_t* taken = nullptr) {
  return pyecho_load(buffer, state.bytes.data(), state.bytes.size(), taken);
}

inline State save(pyecho_buffer* buffer) {
  State state;
  unsigned char* bytes = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(pyecho_save(buffer, &bytes, &size, &state.taken), PYECHO_OK) << pyecho_last_error();
  state.bytes.assign(bytes, bytes + size);
  pyecho_free(bytes);
  return state;
}

// The words before the columns of a state, see csrc/capi/state.cpp, and their places behind the fingerprint.
using Words = std::vector<std::uint64_t>;
enum Place : std::uint8_t { kOpenItems = 2, kIterations = 4, kBatches = 5, kPasses = 12 };

// Returns a state whose words `change(words, words behind the fingerprint)` has changed, with a valid checksum.
template <class Change>
State forged(const State& state, const Change& change) {
  std::uint64_t count = 0;
  std::memcpy(&count, state.bytes.data() + 2 * sizeof(count), sizeof(count));
  const auto columns = state.bytes.begin() + static_cast<std::ptrdiff_t>(count * sizeof(count));
  Words words(count);
  std::memcpy(words.data(), state.bytes.data(), count * sizeof(count));
  change(words, words.begin() + static_cast<std::ptrdiff_t>(4 + words[3]));
  words[2] = words.size();
  words[1] = checksum(std::as_bytes(std::span(words).subspan(2)), 0);
  State made;
  made.bytes.resize(words.size() * sizeof(count));
  std::memcpy(made.bytes.data(), words.data(), made.bytes.size());
  made.bytes.insert(made.bytes.end(), columns, state.bytes.end());
  return made;
}

}  // namespace pyecho::capi_tests
