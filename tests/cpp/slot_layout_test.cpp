#include "core/memory/slot_layout.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace pyecho {
namespace {

TEST(SlotLayout, leaves_lie_side_by_side_and_aligned_to_their_size) {
  const SlotLayout layout({1, 8, 12, 3, 16}, 10, false);
  const auto& leaves = layout.leaves();
  EXPECT_EQ(leaves[0].slot_offset, 0U);
  EXPECT_EQ(leaves[1].slot_offset, 8U);
  EXPECT_EQ(leaves[2].slot_offset, 16U);
  EXPECT_EQ(leaves[3].slot_offset, 28U);
  EXPECT_EQ(leaves[4].slot_offset, 32U);
  EXPECT_EQ(layout.example_bytes(), 40U);
  EXPECT_EQ(layout.slot_bytes(), 64U);
}

TEST(SlotLayout, regions_never_overlap) {
  for (const std::uint32_t rows : {1U, 3U, 64U}) {
    const SlotLayout layout({1, 2, 0, 33, 64, 7}, rows, true);
    std::size_t end_of_slot = 0;
    std::size_t end_of_batch = 0;
    for (const SlotLayout::Leaf& leaf : layout.leaves()) {
      EXPECT_GE(leaf.slot_offset, end_of_slot);
      EXPECT_TRUE(leaf.size_bytes % SlotLayout::kLeafAlignment != 0 || leaf.size_bytes == 0 ||
                  leaf.slot_offset % SlotLayout::kLeafAlignment == 0);
      EXPECT_GE(leaf.batch_offset, end_of_batch);
      EXPECT_EQ(leaf.batch_offset % SlotLayout::kRegionAlignment, 0U);
      end_of_slot = leaf.slot_offset + leaf.size_bytes;
      end_of_batch = leaf.batch_offset + leaf.size_bytes * rows;
    }
    EXPECT_GE(layout.slot_bytes(), end_of_slot);
    EXPECT_GE(layout.source_index_offset(), end_of_batch);
    EXPECT_GE(layout.use_offset(), layout.source_index_offset() + rows * sizeof(std::int64_t));
    EXPECT_GE(layout.batch_bytes(), layout.use_offset() + rows * sizeof(std::int32_t));
  }
}

TEST(SlotLayout, empty_leaves_and_no_leaves_still_give_storage) {
  for (const auto& leaves : {std::vector<std::size_t>{}, {0}, {0, 0}}) {
    const SlotLayout layout(leaves, 4, false);
    EXPECT_EQ(layout.example_bytes(), 0U);
    EXPECT_EQ(layout.slot_bytes(), SlotLayout::kSlotAlignment);
    EXPECT_GE(layout.batch_bytes(), 1U);
  }
}

TEST(SlotLayout, what_does_not_fit_the_address_space_is_an_error) {
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(SlotLayout({kMax}, 1, false), std::length_error);
  EXPECT_THROW(SlotLayout({kMax / 8}, 16, false), std::length_error);
  EXPECT_THROW(SlotLayout({kMax / 5, kMax / 5}, 1, false), std::length_error);
  EXPECT_THROW(SlotLayout({std::size_t{1} << 40}, 0xFFFFFFFFU, false), std::length_error);
  EXPECT_NO_THROW(SlotLayout({std::size_t{1} << 40}, 1U << 20, false));
}

}  // namespace
}  // namespace pyecho
