// The C interface (include/pyecho/pyecho.h): what it promises, and that misuse is answered with a code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "pyecho/pyecho.h"

namespace {

constexpr std::array<std::int64_t, 1> kShape = {3};

pyecho_leaf leaf_of(const char* dtype, std::uint32_t ndim = 0) {
  pyecho_leaf leaf = PYECHO_LEAF_INIT;
  leaf.name = dtype;
  leaf.dtype = dtype;
  leaf.shape = kShape.data();
  leaf.ndim = ndim;
  return leaf;
}

const std::array<pyecho_leaf, 2> kLeaves = {leaf_of("<i8"), leaf_of("<f4", 1)};

pyecho_config config_of(double factor = 2, std::uint32_t batch_rows = 4, std::uint32_t capacity = 8) {
  pyecho_config config = PYECHO_CONFIG_INIT;
  config.leaves = kLeaves.data();
  config.leaf_count = kLeaves.size();
  config.factor = factor;
  config.batch_rows = batch_rows;
  config.capacity = capacity;
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

std::size_t slot_offset(pyecho_buffer* buffer, std::size_t leaf) {
  pyecho_leaf found = PYECHO_LEAF_INIT;
  EXPECT_EQ(pyecho_get_leaf(buffer, leaf, &found), PYECHO_OK);
  return found.slot_offset;
}

void put(pyecho_buffer* buffer, std::int64_t number) {
  pyecho_slot slot;
  ASSERT_EQ(pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, nullptr), PYECHO_OK);
  const std::array<float, 3> row = {static_cast<float>(number), 1, 2};
  std::memcpy(slot.data + slot_offset(buffer, 0), &number, sizeof(number));
  std::memcpy(slot.data + slot_offset(buffer, 1), row.data(), sizeof(row));
  ASSERT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
}

// Takes batches until something else comes, and returns that. Appends the first leaf of each row.
pyecho_status take_all(pyecho_buffer* buffer, std::vector<std::int64_t>& rows, int most = -1) {
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

TEST(Interface, EachExampleComesAsOftenAsItsFactor) {
  const Held buffer(config_of(3));
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) {
      put(buffer, i);
    }
    EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  });
  std::vector<std::int64_t> rows;
  EXPECT_EQ(take_all(buffer, rows), PYECHO_END);
  producer.join();
  std::map<std::int64_t, int> uses;
  for (const std::int64_t row : rows) {
    ++uses[row];
  }
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
  std::vector<std::int64_t> rows;
  EXPECT_EQ(take_all(buffer, rows), PYECHO_END);
  EXPECT_EQ(rows.size(), 60U);
}

TEST(Interface, PassesFlowAndEpochsBegin) {
  const Held buffer(config_of(2));
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < 3; ++i) {
      put(buffer, i);
    }
    ASSERT_EQ(pass == 0 ? pyecho_end_pass(buffer, PYECHO_FOREVER) : pyecho_close(buffer), PYECHO_OK);
  }
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<std::int64_t> rows;
    EXPECT_EQ(take_all(buffer, rows), PYECHO_END);
    EXPECT_EQ(rows.size(), 6U);
  }
  ASSERT_EQ(pyecho_begin(buffer, 1, 1), PYECHO_OK);
  put(buffer, 0);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  std::vector<std::int64_t> rows;
  EXPECT_EQ(take_all(buffer, rows), PYECHO_END);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{0, 0}));
}

TEST(Interface, AFailureComesAfterEverythingElse) {
  const Held buffer(config_of(2));
  put(buffer, 0);
  EXPECT_EQ(pyecho_fail(buffer, "the disk is gone"), PYECHO_OK);
  EXPECT_EQ(pyecho_fail(buffer, "a second failure"), PYECHO_OK);
  std::vector<std::int64_t> rows;
  EXPECT_EQ(take_all(buffer, rows), PYECHO_FAILED);
  EXPECT_STREQ(pyecho_last_error(), "the disk is gone");
  EXPECT_EQ(rows.size(), 2U);
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

TEST(Interface, ABatchKeepsTheBufferAlive) {
  const pyecho_config config = config_of(1, 1, 1);
  pyecho_buffer* buffer = nullptr;
  ASSERT_EQ(pyecho_create(&config, &buffer), PYECHO_OK);
  put(buffer, 7);
  pyecho_batch batch = PYECHO_BATCH_INIT;
  ASSERT_EQ(pyecho_acquire(buffer, &batch, PYECHO_FOREVER), PYECHO_OK);
  pyecho_release(buffer);
  EXPECT_EQ(*reinterpret_cast<std::int64_t*>(batch.data), 7);
  EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
  EXPECT_EQ(batch.id, 0U);
}

// ---------------------------------------------------------------- misuse

TEST(Misuse, OfSlots) {
  const Held buffer(config_of());
  std::array<pyecho_slot, 2> slots;
  std::size_t count = 0;
  EXPECT_EQ(pyecho_reserve(nullptr, slots.data(), 1, 0, nullptr), PYECHO_INVALID);
  EXPECT_EQ(pyecho_reserve(buffer, nullptr, 1, 0, nullptr), PYECHO_INVALID);
  EXPECT_EQ(pyecho_reserve(buffer, slots.data(), 0, 0, &count), PYECHO_INVALID);
  EXPECT_EQ(pyecho_reserve(buffer, slots.data(), PYECHO_MAX_GROUP + 1, 0, &count), PYECHO_INVALID);
  EXPECT_EQ(pyecho_reserve(buffer, slots.data(), 2, 0, nullptr), PYECHO_INVALID);
  ASSERT_EQ(pyecho_reserve(buffer, slots.data(), 2, 0, &count), PYECHO_OK);
  EXPECT_EQ(pyecho_begin(buffer, 1, PYECHO_UNKNOWN), PYECHO_MISUSE);  // one is open
  EXPECT_EQ(pyecho_commit(buffer, slots.data(), 1), PYECHO_OK);
  EXPECT_EQ(pyecho_commit(buffer, slots.data(), 1), PYECHO_MISUSE);
  EXPECT_EQ(pyecho_abort(buffer, slots.data(), 1), PYECHO_MISUSE);
  pyecho_slot forged = slots[1];
  forged.index = 1U << 31U;
  EXPECT_EQ(pyecho_commit(buffer, &forged, 1), PYECHO_MISUSE);
  forged = slots[1];
  ++forged.ticket;
  EXPECT_EQ(pyecho_commit(buffer, &forged, 1), PYECHO_MISUSE);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  EXPECT_EQ(pyecho_commit(buffer, &slots[1], 1), PYECHO_OK);  // it was reserved before
  EXPECT_EQ(pyecho_reserve(buffer, slots.data(), 1, PYECHO_FOREVER, nullptr), PYECHO_CLOSED);
  EXPECT_EQ(pyecho_fail(buffer, nullptr), PYECHO_INVALID);
}

TEST(Misuse, OfBatches) {
  const Held buffer(config_of(2, 1, 1));
  put(buffer, 0);
  pyecho_batch batch = PYECHO_BATCH_INIT;
  EXPECT_EQ(pyecho_acquire(buffer, nullptr, 0), PYECHO_INVALID);
  EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_MISUSE);
  ASSERT_EQ(pyecho_acquire(buffer, &batch, PYECHO_FOREVER), PYECHO_OK);
  EXPECT_EQ(pyecho_acquire(buffer, &batch, PYECHO_FOREVER), PYECHO_MISUSE);  // it holds one
  pyecho_batch copy = batch;
  EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
  EXPECT_EQ(pyecho_release_batch(buffer, &copy), PYECHO_MISUSE);
  ASSERT_EQ(pyecho_acquire(buffer, &batch, PYECHO_FOREVER), PYECHO_OK);  // in the same place
  EXPECT_EQ(pyecho_release_batch(buffer, &copy), PYECHO_MISUSE);
  EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
  batch.struct_bytes = 8;
  EXPECT_EQ(pyecho_acquire(buffer, &batch, 0), PYECHO_INVALID);
}

TEST(Misuse, OfTheConfiguration) {
  pyecho_buffer* buffer = reinterpret_cast<pyecho_buffer*>(8);
  EXPECT_EQ(pyecho_create(nullptr, &buffer), PYECHO_INVALID);
  EXPECT_EQ(buffer, nullptr);
  const auto refused = [](const pyecho_config& config, const char* word) {
    pyecho_buffer* made = nullptr;
    EXPECT_EQ(pyecho_create(&config, &made), PYECHO_INVALID) << word;
    EXPECT_EQ(made, nullptr);
    EXPECT_NE(std::string(pyecho_last_error()).find(word), std::string::npos) << pyecho_last_error();
  };
  pyecho_config config = config_of();
  config.struct_bytes = 0;
  refused(config, "struct_bytes");
  refused(config_of(0.5), "factor");
  refused(config_of(NAN), "factor");
  refused(config_of(2, 0), "batch_rows");
  refused(config_of(1e9, 1, 1U << 28U), "factor");
  config = config_of();
  config.leaf_count = 0;
  refused(config, "leaf");
  for (const char* const dtype :
       {"", "f", "<f", "4", "<f0", "<i99999999999999999999", "float32", "<ff4", "<x4", "|O8"}) {
    const std::array<pyecho_leaf, 1> leaves = {leaf_of(dtype)};
    config = config_of();
    config.leaves = leaves.data();
    config.leaf_count = 1;
    refused(config, "dtype");
  }
  config = config_of();
  config.min_uses = 3;  // more than factor
  refused(config, "min_uses");
  config = config_of();
  config.max_bytes = 1;
  refused(config, "max_bytes");
  constexpr std::int64_t kHuge = std::int64_t{1} << 52;
  std::array<pyecho_leaf, 1> huge = {leaf_of("<i8", 1)};
  huge[0].shape = &kHuge;
  config = config_of();
  config.leaves = huge.data();
  config.leaf_count = 1;
  refused(config, "address space");
}

TEST(Misuse, OfNothing) {
  EXPECT_EQ(pyecho_retain(nullptr), PYECHO_INVALID);
  pyecho_release(nullptr);
  pyecho_free(nullptr);
  EXPECT_EQ(pyecho_close(nullptr), PYECHO_INVALID);
  EXPECT_EQ(pyecho_get_api(PYECHO_ABI_VERSION + 1), nullptr);
  EXPECT_NE(std::string(pyecho_status_string(static_cast<pyecho_status>(99))), "");
  EXPECT_STREQ(pyecho_get_api(PYECHO_ABI_VERSION)->library_version(), pyecho_version());
}

TEST(Misuse, ASecondConsumerIsRefused) {
  const Held buffer(config_of());
  std::thread consumer([&] {
    pyecho_batch batch = PYECHO_BATCH_INIT;
    pyecho_status status = PYECHO_MISUSE;
    while (status == PYECHO_MISUSE) {  // the first thread is inside
      status = pyecho_acquire(buffer, &batch, PYECHO_FOREVER);
    }
    EXPECT_EQ(status, PYECHO_CLOSED);
  });
  pyecho_batch batch = PYECHO_BATCH_INIT;
  pyecho_status status = PYECHO_TIMEOUT;
  while (status == PYECHO_TIMEOUT) {  // until the other thread is inside
    status = pyecho_acquire(buffer, &batch, 1000);
  }
  EXPECT_EQ(status, PYECHO_MISUSE);
  EXPECT_EQ(pyecho_stop(buffer), PYECHO_OK);
  consumer.join();
}

// ---------------------------------------------------------------- growth

// A program of today with structs that a later library knows more of: it writes only what the program knows.
TEST(Growth, AnEarlierProgramRuns) {
  const Held buffer(config_of());
  struct {
    pyecho_stats stats = PYECHO_STATS_INIT;
    std::uint64_t behind = 0xABCD;
  } shorter;
  shorter.stats.struct_bytes = offsetof(pyecho_stats, batches);
  shorter.stats.batches = 77;
  ASSERT_EQ(pyecho_get_stats(buffer, &shorter.stats), PYECHO_OK);
  EXPECT_EQ(shorter.stats.batches, 77U);
  EXPECT_EQ(shorter.behind, 0xABCDU);

  pyecho_config config = config_of();
  config.struct_bytes = offsetof(pyecho_config, capacity);  // what follows has its default
  config.max_bytes = 1;
  const Held other(config);
  pyecho_layout layout = PYECHO_LAYOUT_INIT;
  EXPECT_EQ(pyecho_get_layout(other, &layout), PYECHO_OK);
  EXPECT_EQ(layout.batch_rows, 4U);
}

// A program of tomorrow, with longer structs, and leaves that are further apart.
TEST(Growth, ALaterProgramRuns) {
  struct LongerLeaf {
    pyecho_leaf leaf = PYECHO_LEAF_INIT;
    std::array<std::uint64_t, 3> more = {1, 2, 3};
  };
  std::array<LongerLeaf, 2> leaves;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].leaf = kLeaves[i];
    leaves[i].leaf.struct_bytes = sizeof(LongerLeaf);
  }
  struct {
    pyecho_config config = config_of();
    std::array<std::uint64_t, 8> more = {1, 2, 3};
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
}

// ---------------------------------------------------------------- states

struct State {
  std::vector<unsigned char> bytes;
  std::uint64_t taken = 0;
};

State save(pyecho_buffer* buffer) {
  State state;
  unsigned char* bytes = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(pyecho_save(buffer, &bytes, &size, &state.taken), PYECHO_OK) << pyecho_last_error();
  state.bytes.assign(bytes, bytes + size);
  pyecho_free(bytes);
  return state;
}

class States : public testing::TestWithParam<std::tuple<double, std::uint32_t, int>> {};

TEST_P(States, GoOnExactly) {
  const auto [factor, threads, taken] = GetParam();
  pyecho_config config = config_of(factor, 3, 10);
  config.threads = threads;
  const auto produce = [](pyecho_buffer* buffer, std::uint64_t from) {
    for (std::uint64_t i = from; i < 80; ++i) {  // of two passes
      if (i == 40) {
        EXPECT_EQ(pyecho_end_pass(buffer, PYECHO_FOREVER), PYECHO_OK);
      }
      put(buffer, static_cast<std::int64_t>(i % 40));
    }
    EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  };
  const auto consume = [](pyecho_buffer* buffer, std::vector<std::int64_t>& rows) {
    for (;;) {
      const pyecho_status status = take_all(buffer, rows, 1);
      if (status == PYECHO_END) {
        rows.push_back(-1);
        if (std::count(rows.begin(), rows.end(), -1) == 2) {
          return;
        }
      }
    }
  };
  std::vector<std::int64_t> whole;
  {
    const Held buffer(config);
    std::thread producer(produce, static_cast<pyecho_buffer*>(buffer), 0);
    consume(buffer, whole);
    producer.join();
  }
  std::vector<std::int64_t> rows;
  State state;
  {
    const Held buffer(config);
    for (std::int64_t batch = 0, next = 0; batch < taken; ++batch) {
      for (pyecho_slot slot; next < 40 && pyecho_reserve(buffer, &slot, 1, 0, nullptr) == PYECHO_OK;) {
        EXPECT_EQ(pyecho_abort(buffer, &slot, 1), PYECHO_OK);  // there is room
        put(buffer, next++);
      }
      EXPECT_EQ(take_all(buffer, rows, 1), PYECHO_OK);
    }
    state = save(buffer);
  }
  config.threads = 1 - std::min(threads, 1U);
  const Held buffer(config);
  put(buffer, 99);  // of an epoch that ends here
  std::uint64_t put_so_far = 0;
  ASSERT_EQ(pyecho_load(buffer, state.bytes.data(), state.bytes.size(), &put_so_far), PYECHO_OK) << pyecho_last_error();
  EXPECT_EQ(put_so_far, state.taken);
  std::thread producer(produce, static_cast<pyecho_buffer*>(buffer), put_so_far);
  consume(buffer, rows);
  producer.join();
  EXPECT_EQ(rows, whole);
}

INSTANTIATE_TEST_SUITE_P(All, States,
                         testing::Combine(testing::Values(1.0, 2.5, 4.0), testing::Values(0U, 2U),
                                          testing::Values(0, 1, 5)));

TEST(State, OfAnEndedInput) {
  const pyecho_config config = config_of(2, 4, 8);
  const Held buffer(config);
  for (int i = 0; i < 6; ++i) {
    put(buffer, i);
  }
  ASSERT_EQ(pyecho_close(buffer), PYECHO_OK);
  std::vector<std::int64_t> whole;
  ASSERT_EQ(take_all(buffer, whole, 2), PYECHO_OK);
  const State state = save(buffer);
  ASSERT_EQ(take_all(buffer, whole), PYECHO_END);
  const State last = save(buffer);
  const Held other(config);
  ASSERT_EQ(pyecho_load(other, state.bytes.data(), state.bytes.size(), nullptr), PYECHO_OK) << pyecho_last_error();
  std::vector<std::int64_t> rows(whole.begin(), whole.begin() + 8);
  EXPECT_EQ(take_all(other, rows), PYECHO_END);
  EXPECT_EQ(rows, whole);
  ASSERT_EQ(pyecho_load(other, last.bytes.data(), last.bytes.size(), nullptr), PYECHO_OK) << pyecho_last_error();
  EXPECT_EQ(take_all(other, rows), PYECHO_END);
  EXPECT_EQ(rows, whole);
}

TEST(State, ADamagedOneIsRefusedAndTheBufferCanBeginAgain) {
  const pyecho_config config = config_of(2, 2, 4);
  const Held buffer(config);
  for (int i = 0; i < 4; ++i) {
    put(buffer, i);
  }
  const State state = save(buffer);
  for (std::size_t at = 0; at < state.bytes.size(); ++at) {
    std::vector<unsigned char> damaged = state.bytes;
    damaged[at] ^= 1U << (at % 8);
    ASSERT_EQ(pyecho_load(buffer, damaged.data(), damaged.size(), nullptr), PYECHO_BAD_STATE) << at;
    ASSERT_EQ(pyecho_load(buffer, state.bytes.data(), at, nullptr), PYECHO_BAD_STATE) << at;
  }
  pyecho_config another = config;
  another.seed = 1;
  const Held other(another);
  EXPECT_EQ(pyecho_load(other, state.bytes.data(), state.bytes.size(), nullptr), PYECHO_BAD_STATE);
  EXPECT_NE(std::string(pyecho_last_error()).find("seed"), std::string::npos);
  pyecho_batch batch = PYECHO_BATCH_INIT;
  EXPECT_EQ(pyecho_acquire(other, &batch, 0), PYECHO_CLOSED);  // as after pyecho_stop()
  ASSERT_EQ(pyecho_begin(buffer, 0, PYECHO_UNKNOWN), PYECHO_OK);
  put(buffer, 0);
  ASSERT_EQ(pyecho_close(buffer), PYECHO_OK);
  std::vector<std::int64_t> rows;
  EXPECT_EQ(take_all(buffer, rows), PYECHO_END);
  EXPECT_EQ(rows.size(), 2U);
}

}  // namespace
