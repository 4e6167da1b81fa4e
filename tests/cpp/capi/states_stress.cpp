// Random states. PYECHO_STRESS=1: 1,000 of them, else 50. Forged ones: fuzz/load_fuzzer.cpp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "random_config.hpp"
#include "states.hpp"

namespace pyecho::capi_tests {
namespace {

int states() {
  const char* const text = std::getenv("PYECHO_STRESS");
  return text == nullptr || std::string(text).empty() || std::string(text) == "0" ? 50 : 1000;
}

// Returns the least max_bytes that pyecho_create() accepts.
std::size_t least_bytes(pyecho_config config) {
  std::size_t refused = 0;
  for (std::size_t accepted = std::size_t{1} << 20U;;) {
    config.max_bytes = refused + (accepted - refused) / 2;
    if (accepted - refused <= 1) {
      return accepted;
    }
    pyecho_buffer* buffer = nullptr;
    (pyecho_create(&config, &buffer) == PYECHO_OK ? accepted : refused) = config.max_bytes;
    pyecho_release(buffer);
  }
}

TEST(StatesStress, EachLoadsIntoItsConfigurationWithTheLeastMaxBytes) {
  for (int round = 0; round < states() && !HasFailure(); ++round) {
    Random random(round);
    pyecho_config config = random_config(random);
    config.max_bytes = least_bytes(config);
    State state;
    {
      const Held buffer(config);
      EXPECT_TRUE(run(buffer, random, below(random, 12), 60));
      state = save(buffer);
    }
    for (int chain = 0; chain < 3; ++chain) {  // states of loaded ones as well
      const Held buffer(config);
      ASSERT_EQ(load(buffer, state), PYECHO_OK) << round << ": " << pyecho_last_error();
      EXPECT_TRUE(run(buffer, random, below(random, 4), 60));
      state = save(buffer);
    }
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
