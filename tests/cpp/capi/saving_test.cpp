// Saving beside producers that are at work: no save is refused, and each state goes on exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "states.hpp"

namespace pyecho::capi_tests {
namespace {

void fill(pyecho_buffer* buffer, const pyecho_slot& slot, std::int64_t number) {
  std::memcpy(slot.data + slot_offset(buffer, 0), &number, sizeof(number));
}

TEST(Saving, AStateEndsBeforeTheFirstSlotThatIsReserved) {
  const pyecho_config config = config_of(2, 4, 8);
  const Held buffer(config);
  put(buffer, 0);
  put(buffer, 1);
  std::array<pyecho_slot, 3> slots;
  std::size_t count = 0;
  ASSERT_EQ(pyecho_reserve(buffer, slots.data(), slots.size(), 0, &count), PYECHO_OK);
  ASSERT_EQ(count, slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    fill(buffer, slots[i], static_cast<std::int64_t>(2 + i));
  }
  ASSERT_EQ(pyecho_commit(buffer, &slots[1], 1), PYECHO_OK);  // the one before it is open
  const State state = save(buffer);
  EXPECT_EQ(state.taken, 2U);

  // The run that goes on has them all.
  ASSERT_EQ(pyecho_commit(buffer, &slots[0], 1), PYECHO_OK);
  ASSERT_EQ(pyecho_commit(buffer, &slots[2], 1), PYECHO_OK);
  EXPECT_EQ(save(buffer).taken, 5U);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  const std::vector<std::int64_t> whole = rows_until(PYECHO_END, buffer);
  EXPECT_EQ(whole.size(), 10U);

  // So has one that was loaded, once they are put again.
  const Held other(config);
  ASSERT_EQ(load(other, state), PYECHO_OK) << pyecho_last_error();
  for (std::int64_t number = 2; number < 5; ++number) {
    put(other, number);
  }
  EXPECT_EQ(pyecho_close(other), PYECHO_OK);
  EXPECT_EQ(rows_until(PYECHO_END, other), whole);
}

TEST(Saving, AnInputThatWasClosedWithAnOpenSlotGoesOnAfterIt) {
  const pyecho_config config = config_of(1, 1, 1);
  const Held buffer(config);
  pyecho_slot slot;
  ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, 0, nullptr), PYECHO_OK);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  const State state = save(buffer);
  EXPECT_EQ(state.taken, 0U);
  fill(buffer, slot, 0);
  ASSERT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
  EXPECT_EQ(rows_until(PYECHO_END, buffer).size(), 1U);
  const Held other(config);
  ASSERT_EQ(load(other, state), PYECHO_OK) << pyecho_last_error();
  put_all(other, 1);
  EXPECT_EQ(rows_until(PYECHO_END, other).size(), 1U);
}

constexpr std::int64_t kItems = 3000;  // of two passes
constexpr int kSaves = 150;            // within the first

// Puts the numbers from `next` on in the order of reservations, and takes its time to fill a slot.
void produce_slowly(pyecho_buffer* buffer, std::mutex& order, std::int64_t& next) {
  for (;;) {
    pyecho_slot slot;
    std::int64_t number = 0;
    {
      const std::scoped_lock lock(order);
      if (next == kItems / 2) {
        EXPECT_EQ(pyecho_end_pass(buffer, PYECHO_FOREVER), PYECHO_OK);
      }
      if (next == kItems || pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr) != PYECHO_OK) {
        break;
      }
      number = next++;
    }
    for (int turn = 0; turn < 20; ++turn) {
      std::this_thread::yield();
    }
    fill(buffer, slot, number % (kItems / 2));
    EXPECT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
  }
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
}

// Puts the numbers from `next` on with two threads, and has `consume` take the batches.
template <class Consume>
void with_producers(pyecho_buffer* buffer, std::int64_t next, const Consume& consume) {
  std::mutex order;
  std::thread one([&] { produce_slowly(buffer, order, next); });
  std::thread other([&] { produce_slowly(buffer, order, next); });
  consume();
  one.join();
  other.join();
}

// Takes the rest. -1 stands for the end of a pass.
void take_passes(pyecho_buffer* buffer, std::vector<std::int64_t>& rows) {
  for (; std::count(rows.begin(), rows.end(), -1) < 2; rows.push_back(-1)) {
    ASSERT_EQ(take_all(buffer, rows), PYECHO_END) << pyecho_last_error();
  }
}

TEST(Saving, EverySaveBesideSlowProducersSucceedsAndGoesOnExactlyWithOtherThreads) {
  for (const auto& [factor, threads] : {std::pair(1.0, 2U), std::pair(2.5, 0U), std::pair(4.0, 1U)}) {
    pyecho_config config = config_of(factor, 7, 16);
    config.threads = threads;
    config.slots_ahead = 1;
    std::vector<std::int64_t> whole;
    std::vector<std::pair<std::size_t, State>> states;  // and the rows before each
    const Held buffer(config);
    with_producers(buffer, 0, [&] {
      for (int count = 0; count < kSaves; ++count) {
        states.emplace_back(whole.size(), save(buffer));
        EXPECT_EQ(take_all(buffer, whole, 1), PYECHO_OK);
      }
      take_passes(buffer, whole);
    });
    ASSERT_EQ(whole.size(), static_cast<std::size_t>(factor * kItems) + 2);
    EXPECT_FALSE(testing::Test::HasFailure());
    config.threads = 1 - std::min(threads, 1U);
    for (std::size_t i = 0; i < states.size(); i += 49) {
      const auto& [before, state] = states[i];
      std::vector<std::int64_t> rows(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(before));
      const Held other(config);
      put(other, 99);  // of an epoch that ends here
      ASSERT_EQ(load(other, state), PYECHO_OK) << pyecho_last_error();
      with_producers(other, static_cast<std::int64_t>(state.taken), [&] { take_passes(other, rows); });
      ASSERT_EQ(rows, whole) << i;
    }
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
