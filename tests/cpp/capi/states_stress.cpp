// Random states and forged ones. PYECHO_STRESS=1: 1,000 and 10,000 of them, else 50 and 300.
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

int count_of(int usual, int stress) {
  const char* const text = std::getenv("PYECHO_STRESS");
  return text == nullptr || std::string(text).empty() || std::string(text) == "0" ? usual : stress;
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
  for (int round = 0; round < count_of(50, 1000) && !HasFailure(); ++round) {
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

constexpr std::uint64_t kValues[] = {0,          1,           2,           7,           60,          1U << 20U,
                                     1ULL << 31, 1ULL << 32U, 1ULL << 40U, 1ULL << 62U, 1ULL << 63U, ~0ULL};

// Changes a word to any value, or leaves some out, or has some twice. (Several such changes may make a state that is as
// good as one of a long run, and takes as long to plan.)
State mutated(const State& state, Random& random) {
  return forged(state, [&](Words& words, auto) {
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(3 + below(random, words.size() - 3));
    const auto end = at + static_cast<std::ptrdiff_t>(below(random, 1 + static_cast<std::uint64_t>(words.end() - at)));
    switch (below(random, 6)) {
      case 0:
        words.erase(at, end);
        return;
      case 1: {
        const Words copy(at, end);
        words.insert(at, copy.begin(), copy.end());
        return;
      }
      case 2:
        *at += below(random, 2) == 0 ? 1 : ~0ULL;
        return;
      default:
        *at = kValues[below(random, std::size(kValues))];
    }
  });
}

// A forged state is refused, or is one of a run that may have been.
TEST(StatesStress, ForgedOnesEndSoonAndTheBufferGoesOn) {
  const int states = count_of(300, 10'000);
  constexpr int kStatesEach = 50;
  int loaded = 0;
  for (int round = 0; round < states / kStatesEach && !HasFailure(); ++round) {
    SCOPED_TRACE(round);  // the seed
    Random random(round);
    pyecho_config config = random_config(random);
    config.max_bytes = std::size_t{64} << 20U;
    const Held buffer(config);
    run(buffer, random, below(random, 12));
    const State state = save(buffer);
    for (int i = 0; i < kStatesEach; ++i) {
      const State made = mutated(state, random);
      const pyecho_status status = load(buffer, made);
      ASSERT_TRUE(status == PYECHO_OK || status == PYECHO_BAD_STATE || status == PYECHO_INVALID) << pyecho_last_error();
      if (status == PYECHO_OK) {
        ++loaded;
        run(buffer, random, 2);
        ASSERT_EQ(load(buffer, state), PYECHO_OK) << pyecho_last_error();
      } else {
        const State after = save(buffer);
        ASSERT_EQ(after.taken, state.taken);
        // Of an adaptive factor, workers may have taken decisions further ahead.
        ASSERT_TRUE(config.min_uses > 0 || after.bytes == state.bytes) << "the buffer has not gone on as before";
      }
    }
  }
  RecordProperty("loaded", loaded);
}

}  // namespace
}  // namespace pyecho::capi_tests
