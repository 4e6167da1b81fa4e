// Operations, and leaves whose examples differ in size, in the C interface.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "calls.hpp"
#include "states.hpp"

namespace pyecho::capi_tests {
namespace {

constexpr std::int64_t kWidth = 3;
constexpr std::array<std::int64_t, 2> kTokens = {-1, kWidth};
constexpr std::array<std::int64_t, 2> kImage = {6, 5};

// Leaves: the number of the example; tokens, as many as it says, modulo 7; an image of which rows are parts.
class Rows : public testing::Test {
 protected:
  Rows() {
    leaves_.at(0) = leaf_of("<i8");
    leaves_.at(1) = leaf_of("<i2");
    leaves_.at(1).shape = kTokens.data();
    leaves_.at(1).ndim = kTokens.size();
    leaves_.at(1).max_bytes = 6 * kWidth * sizeof(std::int16_t);
    leaves_.at(2) = leaf_of("|u1");
    leaves_.at(2).shape = kImage.data();
    leaves_.at(2).ndim = kImage.size();
    ops_.at(0).kind = PYECHO_OP_RANDOM_CROP;
    ops_.at(0).axes = axes_.data();
    ops_.at(0).axis_count = axes_.size();
    ops_.at(0).sizes = sizes_.data();
    ops_.at(0).size_count = sizes_.size();
    ops_.at(1).kind = PYECHO_OP_CAST;
    ops_.at(1).draws = 1;
    ops_.at(1).element = PYECHO_FLOAT32;
    leaves_.at(2).ops = ops_.data();
    leaves_.at(2).op_count = ops_.size();
    config_ = config_of(2, 4, 8);
    config_.leaves = leaves_.data();
    config_.leaf_count = leaves_.size();
  }

  static void put(pyecho_buffer* buffer, std::int64_t number) {
    pyecho_slot slot;
    ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr), PYECHO_OK);
    EXPECT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_MISUSE) << "a slot without a shape was committed";
    const std::array<std::int64_t, 2> shape = {number % 7, kWidth};
    unsigned char* tokens = nullptr;
    ASSERT_EQ(pyecho_set_shape(buffer, &slot, 1, shape.data(), &tokens), PYECHO_OK) << pyecho_last_error();
    const std::vector<std::int16_t> values(static_cast<std::size_t>(shape[0] * kWidth),
                                           static_cast<std::int16_t>(number));
    std::copy_n(reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(std::int16_t), tokens);
    std::memcpy(slot.data + slot_offset(buffer, 0), &number, sizeof(number));
    std::memset(slot.data + slot_offset(buffer, 2), static_cast<int>(number), kImage[0] * kImage[1]);
    ASSERT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK) << pyecho_last_error();
  }

  // Takes batches, at most so many, checks their rows, and counts those of each example.
  static pyecho_status take(pyecho_buffer* buffer, std::map<std::int64_t, int>& uses, int most = -1) {
    std::array<pyecho_leaf, 3> leaves{};
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      leaves.at(leaf) = PYECHO_LEAF_INIT;
      EXPECT_EQ(pyecho_get_leaf(buffer, leaf, &leaves.at(leaf)), PYECHO_OK);
    }
    EXPECT_EQ(leaves[2].row_bytes, 2 * 3 * sizeof(float));
    for (; most != 0; --most) {
      pyecho_batch batch = PYECHO_BATCH_INIT;
      if (const pyecho_status status = pyecho_acquire(buffer, &batch, PYECHO_FOREVER); status != PYECHO_OK) {
        return status;
      }
      const unsigned char* data = nullptr;
      const std::int64_t* shapes = nullptr;
      EXPECT_EQ(pyecho_get_rows(buffer, &batch, 0, &data, &shapes), PYECHO_INVALID);
      EXPECT_EQ(pyecho_get_rows(buffer, &batch, 1, &data, &shapes), PYECHO_OK);
      const auto* tokens = reinterpret_cast<const std::int16_t*>(data);
      for (std::uint32_t row = 0; row < batch.rows; ++row) {
        const std::int64_t number = reinterpret_cast<const std::int64_t*>(batch.data + leaves[0].batch_offset)[row];
        EXPECT_EQ(shapes[2 * row], number % 7);
        EXPECT_EQ(shapes[2 * row + 1], kWidth);
        for (std::int64_t i = 0; i < shapes[2 * row] * kWidth; ++i) {
          EXPECT_EQ(*tokens++, number);
        }
        const auto* const part = reinterpret_cast<const float*>(batch.data + leaves[2].batch_offset) + row * 6;
        EXPECT_TRUE(std::all_of(part, part + 6, [&](float value) { return value == static_cast<float>(number); }));
        ++uses[number];
      }
      EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
      EXPECT_EQ(pyecho_get_rows(buffer, &batch, 1, &data, &shapes), PYECHO_MISUSE);
    }
    return PYECHO_OK;
  }

  std::array<std::uint32_t, 2> axes_ = {0, 1};
  std::array<std::uint64_t, 2> sizes_ = {2, 3};
  std::array<pyecho_op, 2> ops_{};
  std::array<pyecho_leaf, 3> leaves_{};
  pyecho_config config_{};
};

TEST_F(Rows, every_use_has_the_rows_of_its_example_also_after_a_state) {
  for (const std::uint32_t threads : {0U, 1U, 2U}) {
    config_.threads = threads;
    std::map<std::int64_t, int> uses;
    State state;
    {
      const Held buffer(config_);
      for (std::int64_t number = 0; number < 12; ++number) {
        put(buffer, number);
      }
      ASSERT_EQ(take(buffer, uses, 2), PYECHO_OK);
      state = save(buffer);
    }
    const Held buffer(config_);
    ASSERT_EQ(load(buffer, state), PYECHO_OK) << pyecho_last_error();
    for (std::int64_t number = 12; number < 14; ++number) {
      put(buffer, number);
    }
    ASSERT_EQ(pyecho_close(buffer), PYECHO_OK);
    ASSERT_EQ(take(buffer, uses), PYECHO_END);
    EXPECT_EQ(uses.size(), 14U);
    EXPECT_TRUE(std::ranges::all_of(uses, [](const auto& each) { return each.second == 2; }));
  }
}

TEST_F(Rows, memory_of_an_example_is_zeroed) {
  const Held buffer(config_);
  pyecho_slot slot;
  ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr), PYECHO_OK);
  for (int round = 0; round < 100; ++round) {  // another call replaces what the slot had
    const std::array<std::int64_t, 2> shape = {1 + round % 6, kWidth};
    unsigned char* data = nullptr;
    ASSERT_EQ(pyecho_set_shape(buffer, &slot, 1, shape.data(), &data), PYECHO_OK);
    const auto bytes = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(shape[0] * kWidth) * sizeof(std::int16_t));
    EXPECT_EQ(std::count(data, data + bytes, 0), bytes);
    std::fill_n(data, bytes, static_cast<unsigned char>(0xAA));
  }
}

TEST_F(Rows, what_cannot_be_is_refused) {
  const Held buffer(config_);
  pyecho_slot slot;
  ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr), PYECHO_OK);
  unsigned char* data = nullptr;
  const auto set = [&](std::int64_t rows, std::int64_t columns, std::size_t leaf = 1) {
    const std::array<std::int64_t, 2> shape = {rows, columns};
    return pyecho_set_shape(buffer, &slot, leaf, shape.data(), &data);
  };
  EXPECT_EQ(set(7, kWidth), PYECHO_INVALID);
  EXPECT_NE(std::strstr(pyecho_last_error(), "max_bytes is 36"), nullptr) << pyecho_last_error();
  EXPECT_EQ(set(INT64_MAX, kWidth), PYECHO_INVALID);
  EXPECT_EQ(set(-1, kWidth), PYECHO_INVALID);
  EXPECT_EQ(set(2, kWidth + 1), PYECHO_INVALID);
  EXPECT_EQ(set(2, kWidth, 0), PYECHO_INVALID);
  EXPECT_EQ(set(2, kWidth, 9), PYECHO_INVALID);
  EXPECT_EQ(set(2, kWidth), PYECHO_OK);
  EXPECT_EQ(set(5, kWidth), PYECHO_OK);  // again
  ASSERT_EQ(pyecho_abort(buffer, &slot, 1), PYECHO_OK);
  EXPECT_EQ(set(2, kWidth), PYECHO_MISUSE);

  const auto refused = [&](const char* why) {
    pyecho_buffer* made = nullptr;
    EXPECT_EQ(pyecho_create(&config_, &made), PYECHO_INVALID);
    EXPECT_NE(std::strstr(pyecho_last_error(), why), nullptr) << pyecho_last_error();
  };
  sizes_.at(0) = 7;
  refused("RandomCrop");
  sizes_.at(0) = 2;
  ops_.at(0).kind = static_cast<pyecho_op_kind>(77);
  refused("kind");
  ops_.at(0).kind = PYECHO_OP_RANDOM_CROP;
  leaves_.at(1).max_bytes = 0;
  refused("max_bytes");
}

}  // namespace
}  // namespace pyecho::capi_tests
