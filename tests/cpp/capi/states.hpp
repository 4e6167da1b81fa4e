// States as values.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "calls.hpp"

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

}  // namespace pyecho::capi_tests
