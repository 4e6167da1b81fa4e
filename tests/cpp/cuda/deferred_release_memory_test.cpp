// A dropped batch when there is no memory to keep it in the list.
#include <gtest/gtest.h>

#include <array>
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

// In a process of its own, because a lost batch stays registered.
void drop_without_memory() {
  const Device& device = Device::get(0);
  const StreamHandle stream = new_stream(device);
  auto* const batches = new std::array{OwnBatch(device), OwnBatch(device)};  // reachable at exit, for leak checkers
  static auto* const reachable = batches;
  DeferredRelease retirement(device);
  bool right = true;
  int failing = 1;  // the first allocation, then the second; both keep the batch in the list
  for (OwnBatch& batch : *reachable) {
    batch.take(1);
    batch.copy(stream);
    allocations_until_failure = failing++;
    batch.drop(retirement, stream);
    allocations_until_failure = 0;
    right = right && retirement.waiting() == 0;
  }
  standin_drain();
  retirement.poll();
  for (const OwnBatch& batch : *reachable) {
    // Lost, and the pool does not wait for it.
    right =
        right && !batch.ended() && batch.arrived() && batch.pool()->obtain() == nullptr && batch.pool()->exhausted();
  }
  std::exit(right ? 0 : 1);
}

TEST(DeferredReleaseMemoryDeathTest, a_batch_is_lost_and_not_overwritten_when_memory_runs_out) {
  EXPECT_EXIT(drop_without_memory(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
