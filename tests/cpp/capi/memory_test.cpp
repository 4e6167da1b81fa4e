// Batches in memory of the caller's.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "states.hpp"

namespace pyecho::capi_tests {
namespace {

// Blocks of an allocator, and how it fails.
struct Blocks {
  std::mutex mutex;
  std::map<unsigned char*, std::size_t> sizes;  // that are not given back; guarded by mutex
  std::size_t allocated = 0;                    // guarded by mutex
  std::size_t most = SIZE_MAX;
  std::size_t misaligned_by = 0;

  static void* allocate(std::size_t size_bytes, void* context) {
    auto& self = *static_cast<Blocks*>(context);
    const std::scoped_lock lock(self.mutex);
    if (self.allocated == self.most) {
      return nullptr;
    }
    ++self.allocated;
    auto* const block = static_cast<unsigned char*>(std::aligned_alloc(64, (size_bytes + 127) / 64 * 64));
    self.sizes[block + self.misaligned_by] = size_bytes;
    return block + self.misaligned_by;
  }
  static void deallocate(void* memory, std::size_t size_bytes, void* context) {
    auto& self = *static_cast<Blocks*>(context);
    const std::scoped_lock lock(self.mutex);
    const auto found = self.sizes.find(static_cast<unsigned char*>(memory));
    ASSERT_TRUE(found != self.sizes.end() && found->second == size_bytes);
    std::free(found->first - self.misaligned_by);
    self.sizes.erase(found);
  }
  [[nodiscard]] pyecho_config use_by(pyecho_config config) {
    config.allocate = allocate;
    config.deallocate = deallocate;
    config.context = this;
    return config;
  }
};

TEST(Memory, BatchesLieInTheCallersAndGoBackToIt) {
  for (const std::uint32_t threads : {0U, 2U}) {
    Blocks blocks;
    pyecho_config config = blocks.use_by(config_of(2, 4, 8));
    config.threads = threads;
    pyecho_buffer* buffer = nullptr;
    ASSERT_EQ(pyecho_create(&config, &buffer), PYECHO_OK) << pyecho_last_error();
    const std::size_t made = blocks.allocated;
    EXPECT_GT(made, 2U);
    std::thread producer(put_all, buffer, 40);
    pyecho_batch batch = PYECHO_BATCH_INIT;
    int rows = 0;
    while (pyecho_acquire(buffer, &batch, PYECHO_FOREVER) == PYECHO_OK) {
      EXPECT_EQ(blocks.sizes.count(batch.data), 1U);
      rows += static_cast<int>(batch.rows);
      if (rows < 80) {
        EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
      } else {
        break;  // the last one is held beyond the buffer's other references
      }
    }
    producer.join();
    EXPECT_EQ(rows, 80);
    EXPECT_EQ(blocks.allocated, made);
    pyecho_release(buffer);
    EXPECT_EQ(blocks.sizes.size(), made);
    EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
    EXPECT_TRUE(blocks.sizes.empty());
  }
}

TEST(Memory, AConsumerThatHoldsThemAllIsToldSo) {
  Blocks blocks;
  const Held buffer(blocks.use_by(config_of(4, 1, 1)));
  put_all(buffer, 1);
  std::vector<pyecho_batch> held;
  pyecho_status status = PYECHO_OK;
  while (status == PYECHO_OK) {
    held.push_back(PYECHO_BATCH_INIT);
    status = pyecho_acquire(buffer, &held.back(), PYECHO_FOREVER);
  }
  EXPECT_EQ(status, PYECHO_EXHAUSTED);
  held.pop_back();
  EXPECT_EQ(held.size(), blocks.allocated);
  for (pyecho_batch& batch : held) {
    EXPECT_EQ(pyecho_release_batch(buffer, &batch), PYECHO_OK);
  }
  EXPECT_EQ(rows_until(PYECHO_END, buffer).size(), 4 - held.size());
}

TEST(Memory, AStateThatNeedsMoreSlotsGivesTheEarlierBlocksBack) {
  Blocks blocks;
  pyecho_config config = config_of(4, 4, 8);
  config.slots_ahead = 2000;
  State state;
  {
    const Held ahead(config);
    std::int64_t number = 0;
    for (pyecho_slot slot; pyecho_reserve(ahead, &slot, 1, 0, nullptr) == PYECHO_OK; ++number) {
      EXPECT_EQ(pyecho_abort(ahead, &slot, 1), PYECHO_OK);  // there is room
      put(ahead, number);
    }
    state = save(ahead);
  }
  config.slots_ahead = 1;
  {
    const Held buffer(blocks.use_by(config));
    const std::size_t made = blocks.allocated;
    ASSERT_EQ(load(buffer, state), PYECHO_OK) << pyecho_last_error();
    EXPECT_GT(blocks.allocated, made);
    EXPECT_EQ(blocks.sizes.size(), blocks.allocated - made);
    EXPECT_EQ(pyecho_close(buffer), PYECHO_OK);
    EXPECT_EQ(rows_until(PYECHO_END, buffer).size(), 4 * state.taken);
  }
  EXPECT_TRUE(blocks.sizes.empty());

  pyecho_buffer* tight = nullptr;
  config.max_bytes = 100'000;
  ASSERT_EQ(pyecho_create(&config, &tight), PYECHO_OK) << pyecho_last_error();
  EXPECT_EQ(load(tight, state), PYECHO_INVALID);
  EXPECT_NE(std::string(pyecho_last_error()).find("of the state need max_bytes"), std::string::npos);
  put_all(tight, 3);  // it goes on
  EXPECT_EQ(rows_until(PYECHO_END, tight).size(), 12U);
  pyecho_release(tight);
}

TEST(Memory, AnAllocatorThatFailsIsAnErrorAndLeavesNothing) {
  Blocks blocks;
  blocks.most = 1;
  pyecho_buffer* buffer = nullptr;
  pyecho_config config = blocks.use_by(config_of());
  EXPECT_EQ(pyecho_create(&config, &buffer), PYECHO_NO_MEMORY);
  blocks.most = SIZE_MAX;
  blocks.misaligned_by = 8;
  EXPECT_EQ(pyecho_create(&config, &buffer), PYECHO_INVALID);
  EXPECT_NE(std::string(pyecho_last_error()).find("64"), std::string::npos);
  config.deallocate = nullptr;
  EXPECT_EQ(pyecho_create(&config, &buffer), PYECHO_INVALID);
  EXPECT_NE(std::string(pyecho_last_error()).find("deallocate"), std::string::npos);
  EXPECT_TRUE(blocks.sizes.empty());
}

}  // namespace
}  // namespace pyecho::capi_tests
