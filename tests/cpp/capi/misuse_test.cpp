// The C interface answers misuse with a code.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "calls.hpp"

namespace pyecho::capi_tests {
namespace {

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
  forged = slots[1];
  forged.data = nullptr;
  EXPECT_EQ(pyecho_commit(buffer, &forged, 1), PYECHO_MISUSE);
  EXPECT_NE(std::string(pyecho_last_error()).find("not reserved"), std::string::npos);
  EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
  EXPECT_EQ(pyecho_commit(buffer, &slots[1], 1), PYECHO_OK);  // it was reserved before
  EXPECT_EQ(pyecho_reserve(buffer, slots.data(), 1, PYECHO_FOREVER, nullptr), PYECHO_CLOSED);
  EXPECT_EQ(pyecho_fail(buffer, nullptr), PYECHO_INVALID);
}

TEST(Misuse, AStateOrAnEpochDoesNotBeginBesideAProducerThatWaits) {
  const Held buffer(config_of());
  unsigned char* state = nullptr;
  std::size_t size_bytes = 0;
  ASSERT_EQ(pyecho_save(buffer, &state, &size_bytes, nullptr), PYECHO_OK);
  pyecho_slot slot;
  while (pyecho_reserve(buffer, &slot, 1, 0, nullptr) == PYECHO_OK) {
    ASSERT_EQ(pyecho_commit(buffer, &slot, 1), PYECHO_OK);
  }
  std::thread producer([&] {
    pyecho_slot late;
    EXPECT_EQ(pyecho_reserve(buffer, &late, 1, PYECHO_FOREVER, nullptr), PYECHO_CLOSED);
  });
  pyecho_stats stats{.struct_bytes = sizeof(pyecho_stats)};
  while (stats.producer_wait_ns == 0) {
    ASSERT_EQ(pyecho_get_stats(buffer, &stats), PYECHO_OK);
  }
  EXPECT_EQ(pyecho_load(buffer, state, size_bytes, nullptr), PYECHO_MISUSE);
  EXPECT_EQ(pyecho_begin(buffer, 1, PYECHO_UNKNOWN), PYECHO_MISUSE);
  EXPECT_EQ(pyecho_stop(buffer), PYECHO_OK);
  producer.join();
  EXPECT_EQ(pyecho_load(buffer, state, size_bytes, nullptr), PYECHO_OK);
  pyecho_free(state);
}

// A slot that was accepted and is not reserved would hold up the consumer for good.
TEST(Misuse, ForgedSlotsAreRefusedAndHoldUpNothing) {
  const Held buffer(config_of(1));
  pyecho_slot open;
  ASSERT_EQ(pyecho_reserve(buffer, &open, 1, 0, nullptr), PYECHO_OK);  // slot 0, ticket 0
  for (const auto call : {pyecho_commit, pyecho_abort}) {
    for (pyecho_slot forged :
         {pyecho_slot{}, pyecho_slot{.data = open.data, .ticket = UINT64_MAX, .index = open.index, .reserved = 0},
          pyecho_slot{.data = open.data + 64, .ticket = UINT64_MAX, .index = open.index + 1, .reserved = 0}}) {
      EXPECT_EQ(call(buffer, &forged, 1), PYECHO_MISUSE);
      std::thread([&] { EXPECT_EQ(call(buffer, &forged, 1), PYECHO_MISUSE); }).join();
    }
  }
  EXPECT_EQ(pyecho_abort(buffer, &open, 1), PYECHO_OK);
  put_all(buffer, 20);
  EXPECT_EQ(rows_until(PYECHO_END, buffer).size(), 20U);
}

TEST(Misuse, OfTwoThreadsThatCommitOneSlotOneDoes) {
  const Held buffer(config_of(1, 1, 64));
  for (int round = 0; round < 40; ++round) {
    std::array<pyecho_slot, 64> slots;
    std::size_t count = 0;
    ASSERT_EQ(pyecho_reserve(buffer, slots.data(), slots.size(), PYECHO_FOREVER, &count), PYECHO_OK);
    std::atomic<std::size_t> arrived = 0;
    std::atomic<std::size_t> committed = 0;
    const auto commit = [&] {
      for (std::size_t i = 0; i < count; ++i) {
        ++arrived;
        for (int looks = 0; arrived < 2 * (i + 1); ++looks) {  // both at once, if both run
          if (looks > 1000) {
            std::this_thread::yield();
          }
        }
        committed += pyecho_commit(buffer, &slots[i], 1) == PYECHO_OK ? 1 : 0;
      }
    };
    std::thread other(commit);
    commit();
    other.join();
    ASSERT_EQ(committed, count);
    ASSERT_EQ(pyecho_begin(buffer, 0, PYECHO_UNKNOWN), PYECHO_OK);
  }
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

struct Wrong {
  const char* word;  // of the message
  void (*change)(pyecho_config&);
};

const Wrong kWrong[] = {
    {"struct_bytes", [](auto& config) { config.struct_bytes = 0; }},
    {"multiple of 8", [](auto& config) { --config.struct_bytes; }},
    {"struct_bytes", [](auto& config) { config.struct_bytes = 0xABABABABABABABA8; }},  // was never set
    {"factor", [](auto& config) { config.factor = 0.5; }},
    {"factor", [](auto& config) { config.factor = NAN; }},
    {"factor",
     [](auto& config) {
       config.factor = 1e9;
       config.batch_size = 1;
       config.shuffle_buffer = 1U << 28U;
     }},
    {"batch_size", [](auto& config) { config.batch_size = 0; }},
    {"threads", [](auto& config) { config.threads = 257; }},
    {"leaf", [](auto& config) { config.leaf_count = 0; }},
    {"min_uses", [](auto& config) { config.min_uses = 3; }},  // more than factor
    {"max_bytes", [](auto& config) { config.max_bytes = 1; }},
};

void expect_refused(const pyecho_config& config, const char* word) {
  pyecho_buffer* made = nullptr;
  EXPECT_EQ(pyecho_create(&config, &made), PYECHO_INVALID) << word;
  EXPECT_EQ(made, nullptr);
  EXPECT_NE(std::string(pyecho_last_error()).find(word), std::string::npos) << pyecho_last_error();
}

TEST(Misuse, OfTheConfiguration) {
  pyecho_buffer* buffer = reinterpret_cast<pyecho_buffer*>(8);
  EXPECT_EQ(pyecho_create(nullptr, &buffer), PYECHO_INVALID);
  EXPECT_EQ(buffer, nullptr);
  for (const Wrong& wrong : kWrong) {
    pyecho_config config = config_of();
    wrong.change(config);
    expect_refused(config, wrong.word);
  }
}

TEST(Misuse, OfLeaves) {
  const auto refuse = [](const pyecho_leaf& leaf, const char* word) {
    pyecho_config config = config_of();
    config.leaves = &leaf;
    config.leaf_count = 1;
    expect_refused(config, word);
  };
  for (const char* const dtype :
       {"", "f", "<f", "4", "<f0", "<i99999999999999999999", "float32", "<ff4", "<f+4", "<f 4", "<x4", "|O8"}) {
    refuse(leaf_of(dtype), "dtype");
  }
  constexpr std::int64_t kHuge = std::int64_t{1} << 52;
  pyecho_leaf huge = leaf_of("<i8", 1);
  huge.shape = &kHuge;
  refuse(huge, "address space");
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

}  // namespace
}  // namespace pyecho::capi_tests
