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

// ---------------------------------------------------------------- forged ones

TEST(State, AForgedOneThatWouldTakeLongToPlanIsRefusedAtOnce) {
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
  refused(many_items, "would take long");
  const auto many_short_passes = [](Words& words, auto at) {
    at[kIterations] = kMany - 1;
    at[kPasses] = 4;
    words.insert(at + kPasses + 1, {1, 3, kMany, 1});
  };
  refused(many_short_passes, "would take long");
  const auto many_empty_passes = [](Words& words, auto at) {
    at[kPasses] = 2 * 64;
    for (int run = 0; run < 64; ++run) {
      words.insert(at + kPasses + 1, {std::uint64_t{1} << 23, 0});
      at = words.begin() + static_cast<std::ptrdiff_t>(4 + words[3]);
    }
  };
  refused(many_empty_passes, "would take long");
  const auto more_batches_than_uses = [](Words&, auto at) {  // of items that take half a second
    at[kOpenItems] = std::uint64_t{1} << 23;
    at[kBatches] = ~std::uint64_t{0};
  };
  refused(more_batches_than_uses, "contradicts itself");
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
