// What is allocated: as much as max_bytes accounts for, and after warm-up nothing, over epochs too.
//
// Replaces the global operator new of the whole test program by one that counts while armed.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "core/stage/echo_buffer.hpp"
#include "core/stage/echo_queue.hpp"

namespace {

std::atomic<bool> armed{false};
std::atomic<std::uint64_t> heap_allocations{0};
std::atomic<std::size_t> heap_bytes{0};

void* allocate(std::size_t size_bytes, std::size_t alignment) {
  if (armed.load(std::memory_order_relaxed)) {
    heap_allocations.fetch_add(1, std::memory_order_relaxed);
    heap_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
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

// Counts what every thread allocates from its making to its end.
class AllocationWatch {
 public:
  AllocationWatch() {
    heap_allocations = 0;
    heap_bytes = 0;
    armed = true;
  }
  ~AllocationWatch() { armed = false; }
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  [[nodiscard]] bool none() const { return heap_allocations.load() == 0 && HostMemory::allocations() == mappings_; }

 private:
  std::uint64_t mappings_ = HostMemory::allocations();
};

TEST(Allocation, the_watch_sees_allocations) {
  const AllocationWatch watch;
  delete new (std::nothrow) std::vector<int>(1);
  EXPECT_FALSE(watch.none());
  EXPECT_GE(heap_bytes.load(), sizeof(int));
}

// Three passes that flow into each other, in each of so many epochs. Neither side allocates here.
template <class Begin, class Put, class EndPass, class Close, class Take>
bool run_epochs(std::uint64_t epochs, const Begin& begin, const Put& put, const EndPass& end_pass, const Close& close,
                const Take& take) {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> written{0};
  bool right = true;
  std::thread producer([&] {
    for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
      begun.wait(epoch - 1);
      for (int pass = 0; pass < 3; ++pass) {
        if (pass > 0) {
          end_pass();
        }
        for (int item = 0; item < 150; ++item) {
          put();
        }
      }
      close();
      written = epoch;
      written.notify_one();
    }
  });
  std::optional<AllocationWatch> watch;
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    if (epoch == 3) {  // the rest is warm
      watch.emplace();
    }
    right = right && begin(epoch) == Outcome::kOk;
    begun = epoch;
    begun.notify_one();
    for (int pass = 0; pass < 3; ++pass) {
      right = take() && right;
    }
    written.wait(epoch - 1);
  }
  right = right && watch->none();
  watch.reset();
  producer.join();
  return right;
}

TEST(Allocation, an_echo_buffer_allocates_nothing_after_warm_up_over_epochs_too) {
  for (const std::uint32_t threads : {0U, 1U, 3U}) {
    EchoBuffer buffer({.leaf_bytes = {8, 600},
                       .batch_rows = 16,
                       .capacity = 64,
                       .factor = 4.0,
                       .unique_in_batch = threads == 3,
                       .with_info = true,
                       .threads = threads});
    const auto reserved = [&] {
      Reservation reservation{};
      EXPECT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
      return reservation;
    };
    EXPECT_TRUE(run_epochs(
        100, [&](std::uint64_t epoch) { return buffer.begin(epoch, kUnknown); }, [&] { buffer.commit(reserved()); },
        [&] { buffer.end_pass(reserved()); }, [&] { buffer.close(); },
        [&] {
          Lease lease;
          std::uint64_t rows = 0;
          Outcome outcome = Outcome::kOk;
          while ((outcome = buffer.acquire(lease, kNever)) == Outcome::kOk) {
            rows += lease.rows();
          }
          return rows == 600 && outcome == Outcome::kEnd;
        }));
  }
}

TEST(Allocation, an_echo_queue_allocates_nothing_after_warm_up_over_epochs_too) {
  EchoQueue queue({.capacity = 8, .factor = 4.5, .prefetch = 8});
  const auto reserved = [&] {
    Reservation reservation{};
    EXPECT_EQ(queue.reserve(reservation, kNever), Outcome::kOk);
    return reservation;
  };
  EXPECT_TRUE(run_epochs(
      200, [&](std::uint64_t epoch) { return queue.begin(epoch, kUnknown); }, [&] { queue.commit(reserved()); },
      [&] { queue.end_pass(reserved()); }, [&] { queue.close(); },
      [&] {
        Use use{};
        std::uint64_t uses = 0;
        for (; queue.next(use, kNever) == Outcome::kOk; ++uses) {
          if (use.last) {
            queue.release(use.slot);
          }
        }
        return uses == 675;
      }));
}

constexpr std::size_t kFixedBytes = 8192;  // one of each thing, whatever the configuration

// Entries of the plan, rings and uses as well as slots and batches.
TEST(Allocation, max_bytes_covers_everything_that_grows_with_the_configuration) {
  const std::vector<std::size_t> leaves{1};
  for (EchoBufferConfig config :
       {EchoBufferConfig{.leaf_bytes = leaves, .batch_rows = 2, .capacity = 20'000, .factor = 29.5},
        EchoBufferConfig{.leaf_bytes = leaves, .batch_rows = 3000, .capacity = 4000, .unique_in_batch = true},
        EchoBufferConfig{.leaf_bytes = leaves, .prefetch = 300, .threads = 3},
        EchoBufferConfig{.leaf_bytes = leaves, .batch_rows = 2, .threads = 0, .burst = 50'000}}) {
    config.max_bytes = EchoBuffer::min_bytes(config);
    const AllocationWatch watch;
    EchoBuffer buffer(config);
    const std::size_t heap = heap_bytes.load();
    std::size_t slots = 0;
    std::array<Reservation, 64> group{};
    for (std::uint32_t count = 0; buffer.try_reserve(group, count) == Outcome::kOk; slots += count) {
    }
    const std::size_t mapped = HostMemory::rounded_bytes(slots * buffer.layout().slot_bytes()) +
                               buffer.stats().batch_blocks * HostMemory::rounded_bytes(buffer.layout().batch_bytes());
    EXPECT_LE(heap + mapped, config.max_bytes + kFixedBytes);
  }
}

}  // namespace
}  // namespace pyecho::test
