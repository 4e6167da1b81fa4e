#include "core/stage/batch_builder.hpp"

#include <gtest/gtest.h>

#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

// Leaves of every size with a copy path of its own, with and without streaming stores.
class BatchBuilderTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::uint32_t kSlots = 40;
  static constexpr std::uint32_t kRows = 70;  // more than are copied in one group

  BatchBuilderTest()
      : layout_({8, 1, 2, 4, 100, 3000, 0}, kRows, true),
        slots_(kSlots * layout_.slot_bytes()),
        pool_(kSlots, 1),
        reclaimer_(pool_, 4, kRows),
        builder_(layout_, slots_.data(), reclaimer_, GetParam()) {
    for (Reservation reservation{}; pool_.try_reserve(reservation) == Outcome::kOk;) {  // all slots are in use
      fill_item(layout_, slots_.data() + reservation.slot * layout_.slot_bytes(), reservation.slot);
    }
    for (Batch* batch : {&batch_, &later_}) {
      batch->memory = HostMemory(layout_.batch_bytes());
      batch->uses.resize(kRows);
    }
    later_.number = 1;
  }

  static void add(Batch& batch, const Use& use) { batch.uses[batch.rows++] = use; }
  [[nodiscard]] std::uint32_t free_slots() {
    std::uint32_t count = 0;
    for (Reservation reservation{}; pool_.try_reserve(reservation) == Outcome::kOk;) {
      ++count;
    }
    return count;
  }
  [[nodiscard]] std::vector<Emission> rows(const Batch& batch) const {
    return rows_of(layout_, batch.memory.data(), std::span(batch.uses).first(batch.rows));
  }

  SlotLayout layout_;
  std::vector<std::byte> slots_;
  SlotPool pool_;
  SlotReclaimer reclaimer_;
  BatchBuilder builder_;
  Batch batch_;
  Batch later_;
};

INSTANTIATE_TEST_SUITE_P(streaming, BatchBuilderTest, testing::Bool());

TEST_P(BatchBuilderTest, rows_and_info_land_where_they_belong_and_last_uses_free_their_slots) {
  std::vector<Emission> expected;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const std::uint32_t slot = row * 7 % kSlots;
    add(batch_, {slot, row, std::uint64_t{row} << 33, row >= kRows - kSlots});  // the last use of each
    expected.push_back({slot, row});
    if (row % 30 == 20) {  // planned up to here
      EXPECT_TRUE(builder_.copy(batch_));
      EXPECT_FALSE(builder_.copy(batch_));
      EXPECT_EQ(free_slots(), row == 20 ? 0U : 21U);
    }
  }
  builder_.finish(batch_);
  EXPECT_EQ(batch_.copied, kRows);
  EXPECT_EQ(rows(batch_), expected);
  EXPECT_EQ(free_slots(), kSlots - 21);
}

TEST_P(BatchBuilderTest, a_later_batch_gives_no_slot_back_before_the_earlier_one_is_whole) {
  add(batch_, {0, 0, 0, false});
  add(later_, {0, 1, 0, true});
  builder_.finish(later_);
  EXPECT_EQ(free_slots(), 0U);  // the first use of slot 0 is still to be copied
  builder_.finish(batch_);
  EXPECT_EQ(free_slots(), 1U);
  EXPECT_EQ(rows(batch_), (std::vector<Emission>{{0, 0}}));
}

}  // namespace
}  // namespace pyecho::test
