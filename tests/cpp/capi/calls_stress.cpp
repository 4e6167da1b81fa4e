// Random calls of the C interface, right ones and wrong ones, by several threads: for PYECHO_STRESS_SECONDS (2 without
// it).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "pyecho/pyecho.h"
#include "random_config.hpp"

namespace pyecho::capi_tests {
namespace {

std::int64_t timeout_of(Random& random) { return static_cast<std::int64_t>(below(random, 3) * below(random, 200'000)); }

void fill(pyecho_buffer* buffer, const pyecho_slot& slot, std::int64_t number) {
  pyecho_leaf leaf = PYECHO_LEAF_INIT;
  ASSERT_EQ(pyecho_get_leaf(buffer, 1, &leaf), PYECHO_OK);
  std::memcpy(slot.data, &number, sizeof(number));
  for (std::size_t i = 0; i < 33; ++i) {
    std::memcpy(slot.data + leaf.slot_offset + i * sizeof(number), &number, sizeof(number));
  }
}

void check(pyecho_buffer* buffer, const pyecho_batch& batch) {
  pyecho_leaf leaves[2] = {PYECHO_LEAF_INIT, PYECHO_LEAF_INIT};
  ASSERT_EQ(pyecho_get_leaf(buffer, 0, &leaves[0]), PYECHO_OK);
  ASSERT_EQ(pyecho_get_leaf(buffer, 1, &leaves[1]), PYECHO_OK);
  const auto* const numbers = reinterpret_cast<const std::int64_t*>(batch.data + leaves[0].batch_offset);
  const auto* const rows = reinterpret_cast<const std::int64_t*>(batch.data + leaves[1].batch_offset);
  for (std::size_t row = 0; row < batch.rows; ++row) {
    for (std::size_t i = 0; i < 33; ++i) {
      ASSERT_EQ(rows[row * 33 + i], numbers[row]);
    }
  }
}

void produce(pyecho_buffer* buffer, std::uint64_t seed, int calls) {
  Random random(seed);
  std::vector<pyecho_slot> open;
  std::vector<pyecho_slot> done;
  for (; calls > 0; --calls) {
    switch (below(random, 12)) {
      case 0:
        if (!open.empty()) {
          EXPECT_EQ(pyecho_abort(buffer, &open.back(), 1), PYECHO_OK);
          done.push_back(open.back());
          open.pop_back();
        }
        break;
      case 1:
        if (!done.empty()) {
          EXPECT_EQ(pyecho_commit(buffer, &done[below(random, done.size())], 1), PYECHO_MISUSE);
        }
        break;
      case 2: {
        pyecho_slot forged = {nullptr, random(), static_cast<std::uint32_t>(random()), 0};
        EXPECT_EQ(pyecho_abort(buffer, &forged, 1), PYECHO_MISUSE);
        break;
      }
      case 3: {
        pyecho_stats stats = PYECHO_STATS_INIT;
        EXPECT_EQ(pyecho_get_stats(buffer, &stats), PYECHO_OK);
        EXPECT_EQ(pyecho_retain(buffer), PYECHO_OK);
        pyecho_release(buffer);
        break;
      }
      case 4:
        if (below(random, 100) == 0) {
          EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
        } else if (below(random, 100) == 0) {
          EXPECT_EQ(pyecho_fail(buffer, "a failure"), PYECHO_OK);
        } else if (below(random, 300) == 0) {
          EXPECT_EQ(pyecho_stop(buffer), PYECHO_OK);
        } else if (open.empty()) {
          EXPECT_NE(pyecho_end_pass(buffer, timeout_of(random)), PYECHO_MISUSE);
        }
        break;
      default: {
        if (open.size() < 4) {
          pyecho_slot slots[8];
          std::size_t count = 0;
          if (pyecho_reserve(buffer, slots, 1 + below(random, 8), open.empty() ? timeout_of(random) : 0, &count) ==
              PYECHO_OK) {
            open.insert(open.end(), slots, slots + count);
          }
        }
        const std::size_t count = open.empty() ? 0 : below(random, open.size() + 1);
        for (std::size_t i = 0; i < count; ++i) {
          fill(buffer, open[i], static_cast<std::int64_t>(random()));
        }
        EXPECT_EQ(pyecho_commit(buffer, open.data(), count), PYECHO_OK);
        done.assign(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count));
        open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count));
      }
    }
  }
  EXPECT_EQ(pyecho_abort(buffer, open.data(), open.size()), PYECHO_OK);
}

// Returns the last state that was taken.
std::vector<unsigned char> consume(pyecho_buffer* buffer, Random& random, int calls, std::vector<pyecho_batch>& held) {
  std::vector<unsigned char> last;
  for (; calls > 0; --calls) {
    switch (below(random, 10)) {
      case 0:
      case 1:
        if (!held.empty()) {
          std::swap(held[below(random, held.size())], held.back());
          pyecho_batch copy = held.back();
          check(buffer, copy);
          EXPECT_EQ(pyecho_release_batch(buffer, &held.back()), PYECHO_OK);
          EXPECT_EQ(pyecho_release_batch(buffer, &copy), PYECHO_MISUSE);
          held.pop_back();
        }
        break;
      case 2: {
        unsigned char* state = nullptr;
        std::size_t size = 0;
        if (pyecho_save(buffer, &state, &size, nullptr) == PYECHO_OK) {
          last.assign(state, state + size);
        }
        pyecho_free(state);
        break;
      }
      default:
        if (held.size() < 6) {
          pyecho_batch batch = PYECHO_BATCH_INIT;
          if (pyecho_acquire(buffer, &batch, timeout_of(random)) == PYECHO_OK) {
            check(buffer, batch);
            held.push_back(batch);
          }
        }
    }
  }
  return last;
}

TEST(CallsStress, nothing_breaks) {
  const char* const seconds = std::getenv("PYECHO_STRESS_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds == nullptr ? 2 : std::atoi(seconds));
  std::uint64_t calls = 0;
  std::uint64_t resumed = 0;
  for (std::uint64_t round = 0; std::chrono::steady_clock::now() < end && !HasFailure(); ++round) {
    Random random(round);
    const pyecho_config config = random_config(random);
    pyecho_buffer* buffer = nullptr;
    ASSERT_EQ(pyecho_create(&config, &buffer), PYECHO_OK) << pyecho_last_error();
    std::vector<pyecho_batch> held;
    for (std::uint64_t epochs = below(random, 4) + 1; epochs > 0; --epochs) {
      std::vector<std::thread> producers;
      for (std::uint64_t i = below(random, 4); i > 0; --i) {
        producers.emplace_back(produce, buffer, random(), 200);
      }
      std::vector<unsigned char> state = consume(buffer, random, 200, held);
      calls += 200 * (producers.size() + 1);
      for (std::thread& producer : producers) {
        producer.join();
      }
      if (!state.empty() && below(random, 3) == 0) {
        state[below(random, state.size())] ^= static_cast<unsigned char>(1 + below(random, 255));
        EXPECT_EQ(pyecho_load(buffer, state.data(), state.size(), nullptr), PYECHO_BAD_STATE);
      } else if (!state.empty() && below(random, 2) == 0) {
        EXPECT_EQ(pyecho_load(buffer, state.data(), state.size(), nullptr), PYECHO_OK) << pyecho_last_error();
        ++resumed;
        continue;
      }
      EXPECT_EQ(pyecho_begin(buffer, below(random, 5), below(random, 2) == 0 ? PYECHO_UNKNOWN : 10), PYECHO_OK);
    }
    pyecho_release(buffer);
    for (pyecho_batch& batch : held) {  // each keeps the buffer
      check(buffer, batch);
      EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
    }
    RecordProperty("calls", static_cast<int>(calls));
    RecordProperty("resumed", static_cast<int>(resumed));
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
