// States of the C interface: saved, loaded, and refused if damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "core/memory/checksum.hpp"

namespace pyecho::capi_tests {
namespace {

struct State {
  std::vector<unsigned char> bytes;
  std::uint64_t taken = 0;
};

pyecho_status load(pyecho_buffer* buffer, const State& state, std::uint64_t* taken = nullptr) {
  return pyecho_load(buffer, state.bytes.data(), state.bytes.size(), taken);
}

State save(pyecho_buffer* buffer) {
  State state;
  unsigned char* bytes = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(pyecho_save(buffer, &bytes, &size, &state.taken), PYECHO_OK) << pyecho_last_error();
  state.bytes.assign(bytes, bytes + size);
  pyecho_free(bytes);
  return state;
}

class States : public testing::TestWithParam<std::tuple<double, std::uint32_t, int>> {};

TEST_P(States, GoOnExactly) {
  const auto [factor, threads, taken] = GetParam();
  pyecho_config config = config_of(factor, 3, 10);
  config.threads = threads;
  const auto produce = [](pyecho_buffer* buffer, std::uint64_t from) {
    for (std::uint64_t i = from; i < 80; ++i) {  // of two passes
      if (i == 40) {
        EXPECT_EQ(pyecho_end_pass(buffer, PYECHO_FOREVER), PYECHO_OK);
      }
      put(buffer, static_cast<std::int64_t>(i % 40));
    }
    EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  };
  const auto consume = [](pyecho_buffer* buffer, std::vector<std::int64_t>& rows) {
    for (;;) {
      const pyecho_status status = take_all(buffer, rows, 1);
      if (status == PYECHO_END) {
        rows.push_back(-1);
        if (std::count(rows.begin(), rows.end(), -1) == 2) {
          return;
        }
      }
    }
  };
  std::vector<std::int64_t> whole;
  {
    const Held buffer(config);
    std::thread producer(produce, static_cast<pyecho_buffer*>(buffer), 0);
    consume(buffer, whole);
    producer.join();
  }
  std::vector<std::int64_t> rows;
  State state;
  {
    const Held buffer(config);
    for (std::int64_t batch = 0, next = 0; batch < taken; ++batch) {
      for (pyecho_slot slot; next < 40 && pyecho_reserve(buffer, &slot, 1, 0, nullptr) == PYECHO_OK;) {
        EXPECT_EQ(pyecho_abort(buffer, &slot, 1), PYECHO_OK);  // there is room
        put(buffer, next++);
      }
      EXPECT_EQ(take_all(buffer, rows, 1), PYECHO_OK);
    }
    state = save(buffer);
  }
  config.threads = 1 - std::min(threads, 1U);
  const Held buffer(config);
  put(buffer, 99);  // of an epoch that ends here
  std::uint64_t put_so_far = 0;
  ASSERT_EQ(load(buffer, state, &put_so_far), PYECHO_OK) << pyecho_last_error();
  EXPECT_EQ(put_so_far, state.taken);
  std::thread producer(produce, static_cast<pyecho_buffer*>(buffer), put_so_far);
  consume(buffer, rows);
  producer.join();
  EXPECT_EQ(rows, whole);
}

INSTANTIATE_TEST_SUITE_P(All, States,
                         testing::Combine(testing::Values(1.0, 2.5, 4.0), testing::Values(0U, 2U),
                                          testing::Values(0, 1, 5)));

TEST(State, OfAnEndedInput) {
  const pyecho_config config = config_of(2, 4, 8);
  const Held buffer(config);
  put_all(buffer, 6);
  std::vector<std::int64_t> whole;
  ASSERT_EQ(take_all(buffer, whole, 2), PYECHO_OK);
  const State state = save(buffer);
  ASSERT_EQ(take_all(buffer, whole), PYECHO_END);
  const State last = save(buffer);
  const Held other(config);
  ASSERT_EQ(load(other, state), PYECHO_OK) << pyecho_last_error();
  std::vector<std::int64_t> rows(whole.begin(), whole.begin() + 8);
  EXPECT_EQ(take_all(other, rows), PYECHO_END);
  EXPECT_EQ(rows, whole);
  ASSERT_EQ(load(other, last), PYECHO_OK) << pyecho_last_error();
  EXPECT_EQ(take_all(other, rows), PYECHO_END);
  EXPECT_EQ(rows, whole);
}

TEST(State, ADamagedOneIsRefusedAndTheBufferCanBeginAgain) {
  const pyecho_config config = config_of(2, 2, 4);
  const Held buffer(config);
  for (int i = 0; i < 4; ++i) {
    put(buffer, i);
  }
  const State state = save(buffer);
  for (std::size_t at = 0; at < state.bytes.size(); ++at) {
    State damaged = state;
    damaged.bytes[at] ^= 1U << (at % 8);
    ASSERT_EQ(load(buffer, damaged), PYECHO_BAD_STATE) << at;
    ASSERT_EQ(pyecho_load(buffer, state.bytes.data(), at, nullptr), PYECHO_BAD_STATE) << at;
  }
  pyecho_config another = config;
  another.seed = 1;
  const Held other(another);
  EXPECT_EQ(load(other, state), PYECHO_BAD_STATE);
  EXPECT_NE(std::string(pyecho_last_error()).find("seed"), std::string::npos);
  pyecho_batch batch = PYECHO_BATCH_INIT;
  EXPECT_EQ(pyecho_acquire(other, &batch, 0), PYECHO_CLOSED);  // as after pyecho_stop()
  ASSERT_EQ(pyecho_begin(buffer, 0, PYECHO_UNKNOWN), PYECHO_OK);
  put_all(buffer, 1);
  EXPECT_EQ(rows_until(PYECHO_END, buffer).size(), 2U);
}

// ---------------------------------------------------------------- forged ones

using Words = std::vector<std::uint64_t>;

// Places in a state behind its fingerprint, see csrc/capi/state.cpp.
enum Place : std::uint8_t { kOpenItems = 2, kIterations = 4, kBatches = 5, kPasses = 6 };

// Returns a state without items whose words `change` has changed, with a valid checksum.
template <class Change>
State forged(const State& state, const Change& change) {
  Words words(state.bytes.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), state.bytes.data(), state.bytes.size());
  change(words, words.begin() + static_cast<std::ptrdiff_t>(4 + words[3]));
  words[2] = words.size() * sizeof(std::uint64_t);
  words[1] = checksum(std::as_bytes(std::span(words).subspan(2)), 0);
  State made;
  made.bytes.resize(words[2]);
  std::memcpy(made.bytes.data(), words.data(), made.bytes.size());
  return made;
}

TEST(State, AForgedOneThatWouldTakeHoursToPlanIsRefusedAtOnce) {
  const Held buffer(config_of(2, 2, 4));
  const State state = save(buffer);
  const auto refused = [&](const auto& change, const char* word) {
    EXPECT_EQ(load(buffer, forged(state, change)), PYECHO_BAD_STATE);
    EXPECT_NE(std::string(pyecho_last_error()).find(word), std::string::npos) << pyecho_last_error();
  };
  constexpr std::uint64_t kMany = std::uint64_t{1} << 40;
  const auto many_items = [](Words&, auto at) {
    at[kOpenItems] = kMany;
    at[kBatches] = kMany / 2;
  };
  refused(many_items, "would take hours to plan again");
  const auto many_short_passes = [](Words& words, auto at) {
    at[kIterations] = kMany - 1;
    at[kPasses] = 2;
    words.insert(at + kPasses + 1, {kMany, 1});
  };
  refused(many_short_passes, "would take hours to plan again");
  const auto many_empty_passes = [](Words& words, auto at) {
    at[kPasses] = 2 * 64;
    for (int run = 0; run < 64; ++run) {
      words.insert(at + kPasses + 1, {std::uint64_t{1} << 20, 0});
      at = words.begin() + static_cast<std::ptrdiff_t>(4 + words[3]);
    }
  };
  refused(many_empty_passes, "would take hours to plan again");
}

TEST(State, OfManyEmptyPassesGoesOnInTime) {
  for (const std::uint32_t min_uses : {0U, 1U}) {  // a fixed factor, an adaptive one
    pyecho_config config = config_of(2, 2, 4);
    config.min_uses = min_uses;
    const Held buffer(config);
    const State state = forged(save(buffer), [](Words& words, auto at) {
      at[kPasses] = 2;
      words.insert(at + kPasses + 1, {std::uint64_t{1} << 20, 0});
    });
    ASSERT_EQ(load(buffer, state), PYECHO_OK) << pyecho_last_error();
    put_all(buffer, 2);
    rows_until(PYECHO_END, buffer);
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
