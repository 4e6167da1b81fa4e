// A buffer of two leaves, and calls that must succeed.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "pyecho/pyecho.h"

namespace pyecho::capi_tests {

inline constexpr std::array<std::int64_t, 1> kShape = {3};

inline pyecho_leaf leaf_of(const char* dtype, std::uint32_t ndim = 0) {
  pyecho_leaf leaf = PYECHO_LEAF_INIT;
  leaf.name = dtype;
  leaf.dtype = dtype;
  leaf.shape = kShape.data();
  leaf.ndim = ndim;
  return leaf;
}

inline const std::array<pyecho_leaf, 2> kLeaves = {leaf_of("<i8"), leaf_of("<f4", 1)};

inline pyecho_config config_of(double factor = 2, std::uint32_t batch_size = 4, std::uint32_t shuffle_buffer = 8) {
  pyecho_config config = PYECHO_CONFIG_INIT;
  config.leaves = kLeaves.data();
  config.leaf_count = kLeaves.size();
  config.factor = factor;
  config.batch_size = batch_size;
  config.shuffle_buffer = shuffle_buffer;
  config.with_info = 1;
  return config;
}

// Owns a buffer.
class Held {
 public:
  explicit Held(const pyecho_config& config) {
    EXPECT_EQ(pyecho_create(&config, &buffer_), PYECHO_OK) << pyecho_last_error();
  }
  ~Held() { pyecho_release(buffer_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  operator pyecho_buffer*() const { return buffer_; }  // NOLINT(google-explicit-constructor)

 private:
  pyecho_buffer* buffer_ = nullptr;
};

inline std::size_t slot_offset(pyecho_buffer* buffer, std::size_t leaf) {
  pyecho_leaf found = PYECHO_LEAF_INIT;
  EXPECT_EQ(pyecho_get_leaf(buffer, leaf, &found), PYECHO_OK);
  return found.slot_offset;
}

inline void put(pyecho_buffer* buffer, std::int64_t number) {
  pyecho_slot slot;
  ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr), PYECHO_OK);
  const std::array<float, 3> row = {static_cast<float>(number), 1, 2};
  std::memcpy(slot.data + slot_offset(buffer, 0), &number, sizeof(number));
  std::memcpy(slot.data + slot_offset(buffer, 1), row.data(), sizeof(row));
  ASSERT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
}

// Puts 0, 1, ... so many, and closes the buffer.
inline void put_all(pyecho_buffer* buffer, std::int64_t count) {
  for (std::int64_t number = 0; number < count; ++number) {
    put(buffer, number);
  }
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
}

// Takes batches until something else comes, and returns that. Appends the first leaf of each row.
inline pyecho_status take_all(pyecho_buffer* buffer, std::vector<std::int64_t>& rows, int most = -1) {
  for (; most != 0; --most) {
    pyecho_batch batch = PYECHO_BATCH_INIT;
    if (const pyecho_status status = pyecho_acquire(buffer, &batch, PYECHO_FOREVER); status != PYECHO_OK) {
      return status;
    }
    pyecho_leaf leaf = PYECHO_LEAF_INIT;
    EXPECT_EQ(pyecho_get_leaf(buffer, 0, &leaf), PYECHO_OK);
    const auto* const numbers = reinterpret_cast<const std::int64_t*>(batch.data + leaf.batch_offset);
    for (std::uint32_t row = 0; row < batch.rows; ++row) {
      EXPECT_EQ(batch.source_index[row], numbers[row]);
      rows.push_back(numbers[row]);
    }
    EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
  }
  return PYECHO_OK;
}

// Takes the rest, which ends with `last`.
inline std::vector<std::int64_t> rows_until(pyecho_status last, pyecho_buffer* buffer) {
  std::vector<std::int64_t> rows;
  EXPECT_EQ(take_all(buffer, rows), last) << pyecho_last_error();
  return rows;
}

}  // namespace pyecho::capi_tests
