// After warm-up the hot path allocates nothing: no heap memory and no mapping.
//
// Replaces the global operator new of the whole test program by one that counts while armed.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>

#include "core/stage/echo_buffer.hpp"
#include "core/stage/echo_queue.hpp"

namespace {

std::atomic<bool> armed{false};
std::atomic<std::uint64_t> heap_allocations{0};

void* allocate(std::size_t size_bytes, std::size_t alignment) {
  if (armed.load(std::memory_order_relaxed)) {
    heap_allocations.fetch_add(1, std::memory_order_relaxed);
  }
  const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  void* const memory =
      alignment <= alignof(std::max_align_t) ? std::malloc(size_bytes) : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) { return allocate(size, 1); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return allocate(size, 1); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace pyecho::test {
namespace {

// Counts what every thread allocates between construction and stop().
class AllocationWatch {
 public:
  AllocationWatch() : mappings_(HostMemory::allocations()) {
    heap_allocations = 0;
    armed = true;
  }
  void stop_and_expect_none() {
    armed = false;
    EXPECT_EQ(heap_allocations.load(), 0U);
    EXPECT_EQ(HostMemory::allocations(), mappings_);
  }

 private:
  std::uint64_t mappings_;
};

TEST(Allocation, the_watch_sees_allocations) {
  AllocationWatch watch;
  auto* volatile object = new int(1);
  armed = false;
  delete object;
  EXPECT_EQ(heap_allocations.load(), 1U);
}

TEST(Allocation, an_echo_buffer_allocates_nothing_after_warm_up) {
  for (const std::uint32_t threads : {1U, 3U}) {
    EchoBuffer buffer({.leaf_bytes = {8, 100},
                       .batch_rows = 16,
                       .capacity = 64,
                       .factor = 4.0,
                       .with_info = true,
                       .threads = threads});
    std::thread producer([&] {
      Reservation reservation{};
      while (buffer.reserve(reservation, kNever) == Outcome::kOk) {
        buffer.slot_data(reservation.slot)[0] = std::byte{1};
        buffer.commit(reservation);
      }
    });
    Lease lease;
    for (int batch = 0; batch < 100; ++batch) {
      ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
    }
    AllocationWatch watch;
    bool right = true;
    for (int batch = 0; batch < 50'000; ++batch) {
      right = right && buffer.acquire(lease, kNever) == Outcome::kOk;
    }
    watch.stop_and_expect_none();
    EXPECT_TRUE(right);
    buffer.stop();
    producer.join();
  }
}

TEST(Allocation, an_echo_queue_allocates_nothing_after_warm_up) {
  EchoQueue queue({.capacity = 8, .factor = 4.5});
  std::thread producer([&] {
    Reservation reservation{};
    while (queue.reserve(reservation, kNever) == Outcome::kOk) {
      queue.commit(reservation);
    }
  });
  AllocationWatch watch;
  bool right = true;
  for (int emission = 0; emission < 100'000; ++emission) {
    Use use{};
    right = right && queue.next(use, kNever) == Outcome::kOk;
    if (use.last) {
      queue.release(use.slot);
    }
  }
  watch.stop_and_expect_none();
  EXPECT_TRUE(right);
  queue.stop();
  producer.join();
}

}  // namespace
}  // namespace pyecho::test
