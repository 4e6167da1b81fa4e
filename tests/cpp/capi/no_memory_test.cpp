// A system without memory: PYECHO_NO_MEMORY, after which the same call works, and nothing is lost. And empty examples,
// for which there is no memory.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "calls.hpp"
#include "states.hpp"
#include "support/counting_new.hpp"

// Else the malloc() of a sanitizer ends the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }  // NOLINT(*reserved*)
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }  // NOLINT(*reserved*)

namespace pyecho::capi_tests {
namespace {

using test::allocations_left;

// Calls until there is memory: the first time the allocation after `failing` others fails. Returns true if one did.
template <class Call>
bool repeated(int failing, const Call& call) {
  allocations_left = failing;
  const pyecho_status first = call();
  allocations_left = -1;
  const bool failed = first == PYECHO_NO_MEMORY || first == PYECHO_EXHAUSTED;  // the latter: for another batch
  EXPECT_EQ(failed ? call() : first, PYECHO_OK) << pyecho_last_error();
  return failed;
}

TEST(NoMemory, AcquireAndReleaseLoseNoBatch) {
  bool failed = true;
  for (int failing = 0; failed; ++failing) {
    ASSERT_LT(failing, 100);
    failed = false;
    pyecho_config config = config_of(1, 1, 1);
    config.slots_ahead = 8;
    const Held buffer(config);
    std::array<pyecho_batch, 5> batches;
    for (std::int64_t number = 0; number < 5; ++number) {
      put(buffer, number);
      pyecho_batch& batch = batches[static_cast<std::size_t>(number)] = PYECHO_BATCH_INIT;
      failed |= repeated(failing, [&] { return pyecho_acquire(buffer, &batch, 0); });
      EXPECT_EQ(batch.source_index[0], number);
    }
    for (pyecho_batch& batch : batches) {
      failed |= repeated(failing, [&] { return pyecho_release_batch(buffer, &batch); });
    }
  }
}

TEST(NoMemory, AStateCanBeLoadedAgain) {
  const pyecho_config config = config_of(3, 2, 4);
  const Held saved(config);
  for (std::int64_t number = 0; number < 6; ++number) {
    put(saved, number);
  }
  std::vector<std::int64_t> before;
  ASSERT_EQ(take_all(saved, before, 2), PYECHO_OK);
  const State state = save(saved);
  EXPECT_EQ(pyecho_close(saved), PYECHO_OK);
  const std::vector<std::int64_t> rest = rows_until(PYECHO_END, saved);
  bool failed = true;
  for (int failing = 0; failed; ++failing) {
    ASSERT_LT(failing, 1000);
    const Held buffer(config);
    put(buffer, 0);
    failed = repeated(failing, [&] { return load(buffer, state); });
    EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
    EXPECT_EQ(rows_until(PYECHO_END, buffer), rest) << failing;
  }
}

pyecho_config ragged_config() {
  static constexpr std::array<std::int64_t, 1> kLength = {-1};
  static const pyecho_leaf kLeaf = [] {
    pyecho_leaf leaf = leaf_of("|u1", 1);
    leaf.shape = kLength.data();
    leaf.max_bytes = std::size_t{1} << 40U;
    return leaf;
  }();
  pyecho_config config = config_of(1, 2, 2);
  config.leaves = &kLeaf;
  config.leaf_count = 1;
  return config;
}

TEST(NoMemory, SetShapeLeavesTheMemoryBefore) {
  const Held buffer(ragged_config());
  pyecho_slot slot;
  ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, 0, nullptr), PYECHO_OK);
  std::int64_t length = 3;
  unsigned char* data = nullptr;
  ASSERT_EQ(pyecho_set_shape(buffer, &slot, 0, &length, &data), PYECHO_OK) << pyecho_last_error();
  std::memset(data, 7, 3);
  length = std::int64_t{1} << 40U;
  unsigned char* none = nullptr;
  EXPECT_EQ(pyecho_set_shape(buffer, &slot, 0, &length, &none), PYECHO_NO_MEMORY);
  ASSERT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  pyecho_batch batch = PYECHO_BATCH_INIT;
  ASSERT_EQ(pyecho_acquire(buffer, &batch, PYECHO_FOREVER), PYECHO_OK);
  const unsigned char* values = nullptr;
  const std::int64_t* shapes = nullptr;
  ASSERT_EQ(pyecho_get_rows(buffer, &batch, 0, &values, &shapes), PYECHO_OK);
  EXPECT_EQ(shapes[0], 3);
  EXPECT_EQ(std::vector<unsigned char>(values, values + 3), std::vector<unsigned char>(3, 7));
  EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
}

TEST(NoMemory, EmptyExamplesNeedNone) {
  const Held buffer(ragged_config());
  for (int number = 0; number < 4; ++number) {
    pyecho_slot slot;
    ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr), PYECHO_OK);
    const std::int64_t length = 0;
    unsigned char* data = nullptr;
    ASSERT_EQ(pyecho_set_shape(buffer, &slot, 0, &length, &data), PYECHO_OK) << pyecho_last_error();
    ASSERT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
  }
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  for (int taken = 0; taken < 2; ++taken) {
    pyecho_batch batch = PYECHO_BATCH_INIT;
    ASSERT_EQ(pyecho_acquire(buffer, &batch, PYECHO_FOREVER), PYECHO_OK);
    EXPECT_EQ(batch.rows, 2U);
    EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
