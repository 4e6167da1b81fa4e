// States of the C interface: saved, loaded, and refused if damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "states.hpp"

namespace pyecho::capi_tests {
namespace {

TEST(State, ADamagedOneIsRefusedAndTheBufferGoesOnAsBefore) {
  const pyecho_config config = config_of(2, 2, 4);
  const Held buffer(config);
  for (int i = 0; i < 4; ++i) {
    put(buffer, i);
  }
  std::vector<std::int64_t> whole;
  std::vector<std::int64_t> rows;
  const State state = save(buffer);
  const Held other(config);
  put_all(other, 4);
  ASSERT_EQ(take_all(other, whole), PYECHO_END);
  for (std::size_t at = 0; at < state.bytes.size(); ++at) {
    State damaged = state;
    damaged.bytes[at] ^= 1U << (at % 8);
    ASSERT_EQ(load(buffer, damaged), PYECHO_BAD_STATE) << at;
    ASSERT_EQ(pyecho_load(buffer, state.bytes.data(), at, nullptr), PYECHO_BAD_STATE) << at;
  }
  EXPECT_EQ(take_all(buffer, rows, 1), PYECHO_OK);
  EXPECT_EQ(pyecho_load(buffer, state.bytes.data(), 0, nullptr), PYECHO_BAD_STATE);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  EXPECT_EQ(take_all(buffer, rows), PYECHO_END);
  EXPECT_EQ(rows, whole);
}

TEST(State, OfAnotherConfigurationIsRefusedByTheNameOfTheOption) {
  const pyecho_config config = config_of(2, 2, 4);
  const State state = save(Held(config));
  const auto refused = [&](const pyecho_config& another, const char* expected) {
    const Held buffer(another);
    EXPECT_EQ(load(buffer, state), PYECHO_BAD_STATE);
    EXPECT_NE(std::string(pyecho_last_error()).find(expected), std::string::npos) << pyecho_last_error();
  };
  pyecho_config another = config;
  another.seed = 1;
  refused(another, "with seed 0, and this buffer has 1");
  another = config;
  another.factor = 2.5;
  refused(another, "with factor 2.0");
  another = config;
  another.leaf_count = 1;
  refused(another, "leaves of other sizes");
}

}  // namespace
}  // namespace pyecho::capi_tests
