#include "core/memory/batch_pool.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pyecho {
namespace {

const SlotLayout kLayout({64}, 4, false);

std::size_t bytes_of(std::size_t blocks) { return blocks * HostMemory::rounded_bytes(kLayout.batch_bytes()); }

TEST(BatchPool, hands_out_what_it_was_made_with_before_it_grows) {
  BatchPool pool(kLayout, 2, bytes_of(10), {});
  EXPECT_EQ(pool.blocks(), 2U);
  const Batch* const first = pool.obtain();
  const Batch* const second = pool.obtain();
  EXPECT_NE(first, second);
  EXPECT_EQ(pool.blocks(), 2U);
  EXPECT_NE(pool.obtain(), nullptr);
  EXPECT_EQ(pool.blocks(), 3U);
}

TEST(BatchPool, grows_up_to_its_limit_and_no_further) {
  BatchPool pool(kLayout, 1, bytes_of(3) + 5, {});
  std::set<Batch*> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.insert(pool.obtain());
  }
  EXPECT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks.count(nullptr), 0U);
  EXPECT_EQ(pool.obtain(), nullptr);
  EXPECT_EQ(pool.blocks(), 3U);
}

TEST(BatchPool, a_returned_block_is_obtained_again_instead_of_growing) {
  BatchPool pool(kLayout, 2, bytes_of(10), {});
  Batch* const first = pool.obtain();
  Batch* const second = pool.obtain();
  const std::uint64_t seen = pool.returns();
  pool.give_back(first, false);
  pool.give_back(second, false);
  EXPECT_EQ(pool.returns(), seen + 2);
  pool.await_return(seen, [] { return false; });
  const std::set<Batch*> again{pool.obtain(), pool.obtain()};
  EXPECT_EQ(again, (std::set<Batch*>{first, second}));
  EXPECT_EQ(pool.blocks(), 2U);
}

TEST(BatchPool, is_exhausted_when_all_blocks_are_leased_and_growth_was_refused) {
  const auto pool = std::make_shared<BatchPool>(kLayout, 2, bytes_of(2), PagePolicy{});
  Lease first(pool, pool->obtain());
  EXPECT_FALSE(pool->exhausted());
  Lease second(pool, pool->obtain());
  EXPECT_FALSE(pool->exhausted());  // nobody was refused yet
  EXPECT_EQ(pool->obtain(), nullptr);
  EXPECT_TRUE(pool->exhausted());
  EXPECT_EQ(pool->outstanding(), 2U);
  first.reset();
  EXPECT_FALSE(pool->exhausted());
  EXPECT_NE(pool->obtain(), nullptr);
}

TEST(BatchPool, says_which_limit_it_was_that_refused_a_block) {
  std::string failure;
  const PagePolicy pages{.prepare = [&](std::byte*, std::size_t) -> std::shared_ptr<void> {
    if (failure == "no memory") {
      throw std::bad_alloc();
    }
    return failure.empty() ? nullptr : throw std::runtime_error(failure);
  }};
  BatchPool pool(kLayout, 1, bytes_of(2), pages);
  EXPECT_NE(pool.obtain(), nullptr);
  failure = "the device's";
  EXPECT_EQ(pool.obtain(), nullptr);
  EXPECT_EQ(pool.refusal(), "the device's");
  failure = "no memory";
  EXPECT_EQ(pool.obtain(), nullptr);
  EXPECT_EQ(pool.refusal(), "the system has no memory for another one");
  failure = "";
  EXPECT_NE(pool.obtain(), nullptr);
  EXPECT_EQ(pool.obtain(), nullptr);
  EXPECT_EQ(pool.refusal(), "");  // max_bytes
}

TEST(BatchPool, a_wait_for_a_return_can_be_interrupted) {
  BatchPool pool(kLayout, 1, bytes_of(1), {});
  pool.await_return(pool.returns(), [] { return true; });
}

TEST(Lease, moves_and_ends_once) {
  const auto pool = std::make_shared<BatchPool>(kLayout, 2, bytes_of(2), PagePolicy{});
  Batch* const block = pool->obtain();
  block->rows = 3;
  Lease lease(pool, block);
  EXPECT_TRUE(lease);
  EXPECT_EQ(lease.rows(), 3U);
  EXPECT_EQ(lease.data(), block->memory.data());
  EXPECT_EQ(lease.layout().batch_bytes(), kLayout.batch_bytes());
  Lease moved(std::move(lease));
  EXPECT_FALSE(lease);  // NOLINT(bugprone-use-after-move)
  Lease assigned;
  assigned = std::move(moved);
  EXPECT_EQ(pool->outstanding(), 1U);
  assigned.reset();
  assigned.reset();
  EXPECT_EQ(pool->outstanding(), 0U);
  EXPECT_EQ(pool->returns(), 1U);
}

TEST(Lease, assigning_another_ends_the_first) {
  const auto pool = std::make_shared<BatchPool>(kLayout, 2, bytes_of(2), PagePolicy{});
  Lease lease(pool, pool->obtain());
  lease = Lease(pool, pool->obtain());
  EXPECT_EQ(pool->outstanding(), 1U);
  EXPECT_EQ(pool->returns(), 1U);
}

TEST(Lease, keeps_memory_alive_after_the_pool_is_gone) {
  auto pool = std::make_shared<BatchPool>(kLayout, 1, bytes_of(1), PagePolicy{});
  Lease lease(pool, pool->obtain());
  const std::weak_ptr<BatchPool> observer = pool;
  pool.reset();
  lease.data()[kLayout.batch_bytes() - 1] = std::byte{7};
  EXPECT_FALSE(observer.expired());
  lease.reset();
  EXPECT_TRUE(observer.expired());
}

TEST(Lease, ends_on_any_thread) {
  const auto pool = std::make_shared<BatchPool>(kLayout, 4, bytes_of(4), PagePolicy{});
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
  EXPECT_EQ(pool->blocks(), 4U);
  EXPECT_EQ(pool->outstanding(), 0U);
}

}  // namespace
}  // namespace pyecho
