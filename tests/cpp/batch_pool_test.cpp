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

namespace pyecho::test {
namespace {

const SlotLayout kLayout({64}, 4, false);
constexpr auto kNotInterrupted = [] { return false; };

std::size_t bytes_of(std::size_t blocks) { return blocks * BatchPool::block_bytes(kLayout); }

std::shared_ptr<BatchPool> pool_of(std::uint32_t blocks, std::size_t max_blocks) {
  return std::make_shared<BatchPool>(kLayout, blocks, bytes_of(max_blocks) + 5, PagePolicy{});
}

TEST(BatchPool, grows_up_to_its_limit_and_prefers_blocks_that_came_back) {
  const auto pool = pool_of(2, 3);
  std::set<Batch*> blocks{pool->obtain(), pool->obtain()};
  EXPECT_EQ(pool->blocks(), 2U);
  blocks.insert(pool->obtain());
  EXPECT_EQ(blocks.size(), 3U);
  EXPECT_EQ(pool->obtain(), nullptr);
  EXPECT_EQ(pool->blocks(), 3U);
  const std::uint64_t seen = pool->returns();
  EXPECT_EQ(pool->await_return(seen, Clock::now(), kNotInterrupted), Outcome::kTimeout);
  EXPECT_EQ(pool->await_return(seen, kNever, [] { return true; }), Outcome::kEmpty);
  for (Batch* const block : blocks) {
    pool->give_back(block, false);
  }
  EXPECT_EQ(pool->await_return(seen, kNever, kNotInterrupted), Outcome::kOk);
  EXPECT_EQ((std::set<Batch*>{pool->obtain(), pool->obtain(), pool->obtain()}), blocks);
}

TEST(BatchPool, is_exhausted_when_all_blocks_are_leased_and_growth_was_refused) {
  const auto pool = pool_of(2, 2);
  Lease first(pool, pool->obtain());
  Lease second(pool, pool->obtain());
  EXPECT_FALSE(pool->exhausted());  // no block was refused yet
  EXPECT_EQ(pool->obtain(), nullptr);
  EXPECT_TRUE(pool->exhausted());
  first.reset();
  EXPECT_FALSE(pool->exhausted());
  EXPECT_NE(pool->obtain(), nullptr);
}

TEST(BatchPool, does_not_grow_while_a_lease_is_about_to_end) {
  const auto pool = pool_of(1, 5);
  Lease lease(pool, pool->obtain());
  lease.expect_end();
  lease.expect_end();
  EXPECT_EQ(pool->obtain(), nullptr);
  EXPECT_FALSE(pool->exhausted());
  const std::uint64_t seen = pool->returns();
  lease.expect_no_end();
  EXPECT_EQ(pool->await_return(seen, kNever, kNotInterrupted), Outcome::kOk);  // check again
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

TEST(Lease, moves_ends_once_and_keeps_the_memory_alive) {
  auto pool = pool_of(3, 3);
  Batch* const block = pool->obtain();
  block->rows = 3;
  Lease lease(pool, block);
  EXPECT_EQ(lease.uses().size(), 3U);
  EXPECT_EQ(lease.data(), block->memory.data());
  Lease moved(std::move(lease));
  EXPECT_FALSE(lease);  // NOLINT(bugprone-use-after-move)
  Lease assigned(pool, pool->obtain());
  assigned = Lease(pool, pool->obtain());
  EXPECT_EQ(pool->returns(), 1U);
  assigned = std::move(moved);
  moved.reset();
  EXPECT_EQ(pool->outstanding(), 1U);
  const std::weak_ptr<BatchPool> observer = pool;
  pool.reset();
  assigned.data()[kLayout.batch_bytes() - 1] = std::byte{7};
  assigned.reset();
  assigned.reset();
  EXPECT_TRUE(observer.expired());
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
