#include "core/memory/slot_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "core/memory/sizes.hpp"

namespace pyecho {
namespace {

TEST(SlotLayout, what_does_not_fit_the_address_space_is_an_error) {
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(SlotLayout({kMax}, 1, false), std::length_error);
  EXPECT_THROW(SlotLayout({kMax / 8}, 16, false), std::length_error);
  EXPECT_THROW(SlotLayout({kMax / 5, kMax / 5}, 1, false), std::length_error);
  EXPECT_THROW(SlotLayout({std::size_t{1} << 40}, 0xFFFFFFFFU, false), std::length_error);
  EXPECT_NO_THROW(SlotLayout({std::size_t{1} << 40}, 1U << 20, false));
  LeafFormat cropped(kMax / 4);  // of which a row has one byte
  cropped.row_bytes = 1;
  EXPECT_NO_THROW(SlotLayout({cropped}, 1, false));
  EXPECT_THROW(SlotLayout({cropped, cropped, cropped, cropped, cropped}, 1, false), std::length_error);
  const LeafFormat variable = LeafFormat::of_variable({.axes = 1, .element_bytes = 1, .max_bytes = kMax / 4});
  EXPECT_THROW(SlotLayout({variable, variable, variable, variable, variable}, 1, false), std::length_error);
  EXPECT_THROW(SlotLayout({variable, variable, variable, variable}, 1, false, true), std::length_error);
}

TEST(SlotLayout, whole_slots_have_room_for_the_largest_item_after_their_record) {
  const LeafFormat variable = LeafFormat::of_variable({.axes = 1, .element_bytes = 1, .max_bytes = 1000});
  const SlotLayout layout({variable, 8, variable}, 1, false, true);
  EXPECT_TRUE(layout.is_whole());
  EXPECT_EQ(layout.leaves()[0].elements_offset, layout.slot_bytes());
  EXPECT_EQ(layout.leaves()[1].elements_offset, 0U);
  EXPECT_EQ(layout.leaves()[2].elements_offset, layout.slot_bytes() + 1024);
  EXPECT_EQ(layout.slot_distance(), layout.slot_bytes() + 2048);
  EXPECT_EQ(layout.variable_bytes(), 2048U);
  EXPECT_FALSE(SlotLayout({8}, 1, false, true).is_whole());
  EXPECT_EQ(SlotLayout({variable, 8}, 1, false).slot_distance(), SlotLayout({variable, 8}, 1, false).slot_bytes());
}

TEST(Sizes, never_wrap_around) {
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  for (const std::size_t large : {kTooLarge, kTooLarge + 1, kMax}) {
    EXPECT_EQ(plus(large, large), kTooLarge);
    EXPECT_EQ(times(large, 2), kTooLarge);
    EXPECT_EQ(times(8, large), kTooLarge);
    EXPECT_EQ(bytes_of_array(8, std::vector<std::size_t>{large, 0}), kTooLarge);
  }
  EXPECT_EQ(times(std::size_t{1} << 31U, std::size_t{1} << 30U), std::size_t{1} << 61U);
  EXPECT_EQ(bytes_of_array(2, std::vector<std::int64_t>{3, 0, 5}), 0);
  EXPECT_EQ(plus(3, 4), 7);
}

}  // namespace
}  // namespace pyecho
