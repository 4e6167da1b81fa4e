// The C interface (include/pyecho/pyecho.h): what it promises, to programs of other versions as well.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"

namespace pyecho::capi_tests {
namespace {

TEST(Interface, EachExampleComesAsOftenAsItsFactor) {
  const Held buffer(config_of(3));
  std::thread producer(put_all, static_cast<pyecho_buffer*>(buffer), 100);
  std::map<std::int64_t, int> uses;
  for (const std::int64_t row : rows_until(PYECHO_END, buffer)) {
    ++uses[row];
  }
  producer.join();
  EXPECT_EQ(uses.size(), 100U);
  for (const auto& [number, count] : uses) {
    EXPECT_EQ(count, 3) << number;
  }
  pyecho_stats stats = PYECHO_STATS_INIT;
  ASSERT_EQ(pyecho_get_stats(buffer, &stats), PYECHO_OK);
  EXPECT_EQ(stats.fresh, 100U);
  EXPECT_EQ(stats.emitted, 300U);
}

TEST(Interface, GroupsAreReservedAndCommittedAtOnce) {
  const Held buffer(config_of(1, 4, 100));
  std::array<pyecho_slot, 64> slots;
  std::size_t count = 0;
  ASSERT_EQ(pyecho_reserve(buffer, slots.data(), slots.size(), PYECHO_FOREVER, &count), PYECHO_OK);
  EXPECT_EQ(count, 64U);
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::int64_t>(i);
    std::memcpy(slots[i].data, &number, sizeof(number));
  }
  EXPECT_EQ(pyecho_abort(buffer, slots.data() + 60, 4), PYECHO_OK);
  EXPECT_EQ(pyecho_commit(buffer, slots.data(), 60), PYECHO_OK);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  EXPECT_EQ(rows_until(PYECHO_END, buffer).size(), 60U);
}

TEST(Interface, AFailureComesAfterEverythingElse) {
  const Held buffer(config_of(2));
  put(buffer, 0);
  EXPECT_EQ(pyecho_fail(buffer, "the disk is gone"), PYECHO_OK);
  EXPECT_EQ(pyecho_fail(buffer, "a second failure"), PYECHO_OK);
  EXPECT_EQ(rows_until(PYECHO_FAILED, buffer).size(), 2U);
  EXPECT_STREQ(pyecho_last_error(), "the disk is gone");
}

TEST(Interface, WaitsEndAtTheirTimeAndAtAStop) {
  const Held buffer(config_of(1, 1, 1));
  pyecho_batch batch = PYECHO_BATCH_INIT;
  EXPECT_EQ(pyecho_acquire(buffer, &batch, 0), PYECHO_TIMEOUT);
  EXPECT_EQ(pyecho_acquire(buffer, &batch, 1000), PYECHO_TIMEOUT);
  pyecho_slot slot;
  while (pyecho_reserve(buffer, &slot, 1, 0, nullptr) == PYECHO_OK) {
    EXPECT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
  }
  EXPECT_EQ(pyecho_reserve(buffer, &slot, 1, 1000, nullptr), PYECHO_TIMEOUT);
  std::thread producer([&] { EXPECT_EQ(pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr), PYECHO_CLOSED); });
  pyecho_stats stats = PYECHO_STATS_INIT;
  while (stats.producer_wait_ns < 2'000'000) {  // it waits
    ASSERT_EQ(pyecho_get_stats(buffer, &stats), PYECHO_OK);
    std::this_thread::yield();
  }
  EXPECT_EQ(pyecho_stop(buffer), PYECHO_OK);
  producer.join();
  EXPECT_EQ(pyecho_acquire(buffer, &batch, PYECHO_FOREVER), PYECHO_CLOSED);
}

// Takes what there is; returns the flags of the end that follows.
std::uint32_t next_end(pyecho_buffer* buffer, std::size_t& batches) {
  pyecho_batch batch = PYECHO_BATCH_INIT;
  for (batches = 0; pyecho_acquire(buffer, &batch, PYECHO_FOREVER) == PYECHO_OK; ++batches) {
    EXPECT_EQ(batch.end, 0U);
    EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
  }
  EXPECT_EQ(batch.id, 0U);
  return batch.end;
}

TEST(Interface, AnEndTellsWhetherItIsThatOfAPassOrOfAnEmptyOneOrTheLast) {
  for (const std::uint32_t threads : {0U, 2U}) {
    pyecho_config config = config_of(1, 4, 1);
    config.threads = threads;
    config.drop_last = 1;
    const Held buffer(config);
    std::size_t batches = 0;
    const auto end_pass = [&](int examples) {
      for (int i = 0; i < examples; ++i) {
        put(buffer, i);
      }
      EXPECT_EQ(pyecho_end_pass(buffer, PYECHO_FOREVER), PYECHO_OK);
    };
    end_pass(8);
    EXPECT_EQ(next_end(buffer, batches), 0U);
    EXPECT_EQ(batches, 2U);
    end_pass(0);
    EXPECT_EQ(next_end(buffer, batches), PYECHO_END_EMPTY);
    end_pass(3);  // too few for a batch
    EXPECT_EQ(next_end(buffer, batches), 0U);
    EXPECT_EQ(batches, 0U);
    put_all(buffer, 4);
    EXPECT_EQ(next_end(buffer, batches), PYECHO_END_LAST);
    EXPECT_EQ(batches, 1U);
    EXPECT_EQ(next_end(buffer, batches), PYECHO_END_LAST);  // from then on
    ASSERT_EQ(pyecho_begin(buffer, 1, PYECHO_UNKNOWN), PYECHO_OK);
    EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
    EXPECT_EQ(next_end(buffer, batches), PYECHO_END_EMPTY | PYECHO_END_LAST);
  }
}

// ---------------------------------------------------------------- growth

// A program of tomorrow, with longer structs, and leaves that are further apart.
TEST(Growth, ALaterProgramRuns) {
  struct LongerLeaf {
    pyecho_leaf leaf = PYECHO_LEAF_INIT;
    std::array<std::uint64_t, 8> more = {};
  };
  std::array<LongerLeaf, 2> leaves;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].leaf = kLeaves[i];
    leaves[i].leaf.struct_bytes = sizeof(LongerLeaf);
  }
  struct {
    pyecho_config config = config_of();
    std::array<std::uint64_t, 8> more = {};
  } longer;
  longer.config.struct_bytes = sizeof(longer);
  longer.config.leaves = &leaves[0].leaf;
  const Held buffer(longer.config);
  struct {
    pyecho_layout layout = PYECHO_LAYOUT_INIT;
    std::uint64_t more = 5;
  } layout;
  layout.layout.struct_bytes = sizeof(layout);
  ASSERT_EQ(pyecho_get_layout(buffer, &layout.layout), PYECHO_OK);
  EXPECT_EQ(layout.layout.leaf_count, 2U);
  put(buffer, 1);

  // An option that this library does not know, of the buffer and of a leaf.
  pyecho_buffer* made = nullptr;
  for (std::uint64_t* const option : {longer.more.data() + 7, leaves[1].more.data() + 7}) {
    *option = 1ULL << 56U;
    EXPECT_EQ(pyecho_create(&longer.config, &made), PYECHO_INVALID);
    EXPECT_NE(std::string(pyecho_last_error()).find("does not know"), std::string::npos) << pyecho_last_error();
    *option = 0;
  }
}

}  // namespace
}  // namespace pyecho::capi_tests
