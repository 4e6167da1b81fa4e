#include "core/stage/batch_builder.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace pyecho {
namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

// With stores that go past the caches, and without.
class GatherTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::uint32_t kSlots = 4;
  static constexpr std::uint32_t kRows = 40;

  GatherTest()
      : layout_({1, 2, 4, 8, 100, 3000, 0}, kRows, true),
        slots_(kSlots * layout_.slot_bytes()),
        pool_(kSlots, 1),
        spent_(pool_, 4, kRows),
        gatherer_(layout_, slots_.data(), spent_, GetParam()) {
    batch_.memory = HostMemory(layout_.batch_bytes());
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {  // all slots are in use
      Reservation reservation{};
      EXPECT_EQ(pool_.try_reserve(reservation), Outcome::kOk);
      for (const SlotLayout::Leaf& leaf : layout_.leaves()) {
        std::memset(slots_.data() + reservation.slot * layout_.slot_bytes() + leaf.slot_offset,
                    static_cast<int>(reservation.slot + 1), leaf.size_bytes);
      }
    }
    gatherer_.begin(0, batch_);
  }

  void add(const Use& use) {
    gatherer_.rest().front() = use;
    gatherer_.add(1);
  }
  [[nodiscard]] std::uint32_t free_slots() {
    std::uint32_t count = 0;
    for (Reservation reservation{}; pool_.try_reserve(reservation) == Outcome::kOk;) {
      ++count;
    }
    return count;
  }
  void expect_row(std::uint32_t row, const Use& use) const {
    for (const SlotLayout::Leaf& leaf : layout_.leaves()) {
      const std::byte* const at = batch_.memory.data() + leaf.batch_offset + row * leaf.size_bytes;
      for (std::size_t i = 0; i < leaf.size_bytes; ++i) {
        ASSERT_EQ(at[i], static_cast<std::byte>(use.slot + 1));
      }
    }
    std::int64_t index = 0;
    std::int32_t ordinal = 0;
    std::memcpy(&index, batch_.memory.data() + layout_.source_index_offset() + row * 8, 8);
    std::memcpy(&ordinal, batch_.memory.data() + layout_.use_offset() + row * 4, 4);
    EXPECT_EQ(index, static_cast<std::int64_t>(use.source_index));
    EXPECT_EQ(ordinal, static_cast<std::int32_t>(use.ordinal));
  }

  SlotLayout layout_;
  std::vector<std::byte> slots_;
  SlotPool pool_;
  SlotReclaimer spent_;
  Batch batch_;
  BatchBuilder gatherer_;
};

INSTANTIATE_TEST_SUITE_P(streaming, GatherTest, testing::Bool());

TEST_P(GatherTest, rows_and_info_land_where_they_belong) {
  std::vector<Use> plan;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    plan.push_back({row * 7 % kSlots, row, std::uint64_t{row} << 33, false});
  }
  for (const Use& use : plan) {
    add(use);
  }
  EXPECT_EQ(gatherer_.planned(), kRows);
  EXPECT_TRUE(gatherer_.copy(kAll));
  EXPECT_FALSE(gatherer_.copy(kAll));
  EXPECT_EQ(batch_.rows, kRows);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    expect_row(row, plan[row]);
  }
}

TEST_P(GatherTest, a_slot_is_released_exactly_at_its_last_use) {
  add({0, 0, 0, false});
  add({0, 1, 0, false});
  add({1, 0, 1, true});
  add({0, 2, 0, true});
  std::vector<std::uint32_t> freed;
  while (gatherer_.copy(1)) {  // one row at a time
    freed.push_back(free_slots());
  }
  EXPECT_EQ(freed, (std::vector<std::uint32_t>{0, 0, 1, 1}));
}

TEST_P(GatherTest, copying_goes_on_where_it_stopped) {
  add({2, 0, 5, false});
  EXPECT_TRUE(gatherer_.copy(kAll));
  EXPECT_EQ(batch_.rows, 1U);
  add({3, 1, 6, false});
  add({2, 2, 5, false});
  EXPECT_TRUE(gatherer_.copy(2 * layout_.slot_bytes()));
  EXPECT_EQ(batch_.rows, 3U);
  expect_row(0, {2, 0, 5, false});
  expect_row(1, {3, 1, 6, false});
  expect_row(2, {2, 2, 5, false});
}

TEST_P(GatherTest, many_released_slots_are_all_announced) {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    add({slot, 0, slot, true});
  }
  EXPECT_TRUE(gatherer_.copy(kAll));
  EXPECT_EQ(free_slots(), kSlots);
}

TEST_P(GatherTest, the_end_copies_what_is_left_and_parts_with_the_batch) {
  add({1, 0, 7, true});
  EXPECT_TRUE(gatherer_.copy(kAll));
  add({2, 0, 8, true});
  EXPECT_EQ(gatherer_.end(), &batch_);
  EXPECT_EQ(gatherer_.batch(), nullptr);
  EXPECT_EQ(gatherer_.planned(), 0U);
  EXPECT_FALSE(gatherer_.copy(kAll));
  EXPECT_EQ(batch_.rows, 2U);
  expect_row(1, {2, 0, 8, true});
  EXPECT_EQ(free_slots(), 2U);
}

TEST_P(GatherTest, a_later_batch_gives_no_slot_back_before_the_earlier_one_is_whole) {
  Batch later{HostMemory(layout_.batch_bytes())};
  BatchBuilder other(layout_, slots_.data(), spent_, GetParam());
  other.begin(1, later);
  add({0, 0, 0, false});
  other.rest().front() = {0, 1, 0, true};
  other.add(1);
  EXPECT_EQ(other.end(), &later);
  EXPECT_EQ(free_slots(), 0U);  // the first use of slot 0 is still to be copied
  EXPECT_EQ(gatherer_.end(), &batch_);
  expect_row(0, {0, 0, 0, false});
  EXPECT_EQ(free_slots(), 1U);
}

TEST_P(GatherTest, a_batch_that_is_not_handed_out_can_be_dropped) {
  add({0, 0, 0, true});
  EXPECT_EQ(gatherer_.drop(), &batch_);
  EXPECT_EQ(gatherer_.planned(), 0U);
  EXPECT_FALSE(gatherer_.copy(kAll));
  EXPECT_EQ(free_slots(), 0U);
}

}  // namespace
}  // namespace pyecho
