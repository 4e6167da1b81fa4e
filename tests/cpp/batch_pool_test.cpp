#include "core/stage/batch_pool.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace pyecho::test {
namespace {

const SlotLayout kLayout({64}, 4, false);

std::size_t bytes_of(std::size_t blocks) { return blocks * BatchPool::block_bytes(kLayout, true); }

std::shared_ptr<BatchPool> pool_of(std::uint32_t blocks, std::size_t max_blocks) {
  return std::make_shared<BatchPool>(kLayout, blocks, bytes_of(max_blocks) + 5);
}

TEST(BatchPool, frees_added_blocks_that_were_idle_for_an_epoch) {
  const auto pool = pool_of(2, 9);
  const auto use = [&](std::size_t count) {
    std::vector<Lease> leases;
    for (std::size_t lease = 0; lease < count; ++lease) {
      leases.emplace_back(pool, pool->obtain());
    }
  };
  use(8);
  pool->end_epoch();
  EXPECT_EQ(pool->blocks(), 8U) << "all were in use in this epoch";
  use(3);
  Lease held(pool, pool->obtain());
  pool->end_epoch();
  EXPECT_EQ(pool->blocks(), 4U) << "two to begin with, and two were leased when another one was obtained";
  pool->end_epoch();
  EXPECT_EQ(pool->blocks(), 3U) << "one is held";
  held.reset();
  use(9);
  EXPECT_EQ(pool->blocks(), 9U);
}

TEST(Lease, ends_on_any_thread) {
  const auto pool = pool_of(4, 4);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([lease = Lease(pool, pool->obtain())]() mutable {
        lease.data()[0] = std::byte{1};
        lease.reset();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_EQ(pool->outstanding(), 0U);
}

}  // namespace
}  // namespace pyecho::test
