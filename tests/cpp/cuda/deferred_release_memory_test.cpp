// A dropped batch when there is no memory to keep it in the list.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "deferred_release_fixture.hpp"

namespace {
thread_local int allocations_until_failure = 0;  // 0: none fails
}  // namespace

// Replaced for the whole test program. The standard containers use the plain form.
[[gnu::noinline]] void* operator new(std::size_t size) {
  const bool fails = allocations_until_failure > 0 && --allocations_until_failure == 0;
  void* const memory = fails ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace pyecho::cuda {
namespace {

// The first two allocations keep a batch in the list; the third is the stand-in's, for a recorded event.
TEST_F(DeferredReleaseTest, a_batch_is_kept_when_memory_runs_out) {
  constexpr std::size_t kBatches = 42;
  constexpr int kAllocations = 3;
  const auto many = batches(kBatches);
  DeferredRelease retirement(device);
  for (const auto& each : many) {  // as many events as will be needed
    each->take_copy_and_drop(1, retirement, stream);
  }
  standin_drain();
  retirement.poll();
  ASSERT_EQ(retirement.waiting(), 0U);
  standin_set_max_delay_us(3000);
  std::size_t not_remembered = 0;
  for (std::size_t i = 0; i < kBatches; ++i) {
    many[i]->take(i);
    many[i]->copy(stream);
    const std::size_t waiting = retirement.waiting();
    allocations_until_failure = 1 + static_cast<int>(i) % kAllocations;
    many[i]->drop(retirement, stream);
    allocations_until_failure = 0;
    not_remembered += retirement.waiting() == waiting ? 1 : 0;
    EXPECT_TRUE(!many[i]->ended() || many[i]->arrived());
  }
  EXPECT_EQ(not_remembered, 2 * kBatches / kAllocations);
  while (retirement.waiting() > 0) {
    retirement.poll();
  }
  for (const auto& each : many) {
    EXPECT_TRUE(each->ended());
    EXPECT_TRUE(each->arrived());
  }
}

}  // namespace
}  // namespace pyecho::cuda
