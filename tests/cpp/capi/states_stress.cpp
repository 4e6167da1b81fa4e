// Random states. PYECHO_STRESS=1: 1,000 of them, else 50. Forged ones: fuzz/load_fuzzer.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
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

// Puts and takes what there is room for, in turns that end anywhere.
void run(pyecho_buffer* buffer, Random& random, std::uint64_t turns) {
  for (; turns > 0; --turns) {
    pyecho_slot slot;
    for (std::uint64_t puts = below(random, 60); puts > 0; --puts) {
      if (pyecho_reserve(buffer, &slot, 1, 0, nullptr) == PYECHO_OK) {
        std::memset(slot.data, static_cast<int>(below(random, 256)), sizeof(std::int64_t));
        EXPECT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
      }
    }
    if (below(random, 20) == 0) {
      pyecho_end_pass(buffer, 0);
    }
    pyecho_batch batch = PYECHO_BATCH_INIT;
    for (std::uint64_t takes = below(random, 8); takes > 0; --takes) {
      if (pyecho_acquire(buffer, &batch, 0) == PYECHO_OK) {
        EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
      }
    }
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
      run(buffer, random, below(random, 12));
      state = save(buffer);
    }
    for (int chain = 0; chain < 3; ++chain) {  // states of loaded ones as well
      const Held buffer(config);
      ASSERT_EQ(load(buffer, state), PYECHO_OK) << round << ": " << pyecho_last_error();
      run(buffer, random, below(random, 4));
      state = save(buffer);
    }
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
