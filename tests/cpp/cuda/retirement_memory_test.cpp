// When there is no memory left to remember a batch in.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "retirement_fixture.hpp"

namespace {
thread_local bool fail_next_allocation = false;
}  // namespace

// For the whole test program; the plain form is the one that containers of the library use.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = std::exchange(fail_next_allocation, false) ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace pyecho::cuda {
namespace {

// The first allocation is one of an event's, or one for the entry: several in a row, as not every entry needs one.
TEST_F(RetirementTest, a_batch_is_kept_when_memory_runs_out) {
  constexpr std::size_t kBatches = 40;
  const auto many = batches(kBatches);
  Retirement retirement(device);
  standin_set_max_delay_us(3000);
  bool failed = false;
  for (std::size_t i = 0; i < kBatches; ++i) {
    many[i]->take(i);
    many[i]->copy(stream);
    fail_next_allocation = true;
    many[i]->drop(retirement, stream);
    failed = !std::exchange(fail_next_allocation, false) || failed;
    EXPECT_TRUE(!many[i]->ended() || many[i]->arrived());
  }
  EXPECT_TRUE(failed);
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
