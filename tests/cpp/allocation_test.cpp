// Allocations: as much as max_bytes accounts for, none after warm-up, also over epochs, and some that fail.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "core/memory/machine.hpp"
#include "core/memory/stream_copy.hpp"
#include "core/plan/rounds_pool.hpp"
#include "core/stage/echo_buffer.hpp"
#include "core/stage/echo_queue.hpp"
#include "support/counting_new.hpp"
#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

// Counts the allocations of all threads during its lifetime. A mapping for a batch comes with one.
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

  [[nodiscard]] bool none() const { return heap_allocations.load() == 0; }
};

TEST(Allocation, the_watch_sees_allocations) {
  const AllocationWatch watch;
  auto* volatile object = new int(1);  // volatile, so that the compiler cannot remove it
  delete object;
  EXPECT_FALSE(watch.none());
  EXPECT_GE(heap_bytes.load(), sizeof(int));
}

std::uint64_t take_iteration(EchoBuffer& buffer) {
  std::uint64_t rows = 0;
  for (Lease lease; buffer.acquire(lease, kNever) == Outcome::kOk; rows += lease.rows()) {
  }
  return rows;
}
std::uint64_t take_iteration(EchoQueue& queue) {
  std::uint64_t uses = 0;
  for (Use use{}; queue.next(use, kNever) == Outcome::kOk; ++uses) {
    if (use.last) {
      queue.release(use.slot);
    }
  }
  return uses;
}

// Epochs of three passes that flow into each other, with 150 items each and three uses per item. Nothing is allocated
// from the third epoch on.
template <class Stage>
void expect_no_allocations(Stage& stage) {
  constexpr std::uint64_t kEpochs = 100;
  std::barrier<> turn(2);
  std::thread producer([&] {
    const auto reserved = [&] {
      Reservation reservation{};
      EXPECT_EQ(stage.input().reserve(reservation, kNever), Outcome::kOk);
      return reservation;
    };
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      turn.arrive_and_wait();
      for (int item = 0; item < 450; ++item) {
        if (item > 0 && item % 150 == 0) {
          stage.input().end_pass(reserved());
        }
        stage.input().commit(reserved());
      }
      stage.input().close();
      turn.arrive_and_wait();
    }
  });
  std::optional<AllocationWatch> watch;
  bool right = true;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    if (epoch == 2) {
      watch.emplace();
    }
    right = begin_epoch(stage, epoch, {.items = 150}) == Outcome::kOk && right;
    turn.arrive_and_wait();
    for (int pass = 0; pass < 3; ++pass) {
      right = take_iteration(stage) == 450 && right;
    }
    turn.arrive_and_wait();
  }
  EXPECT_TRUE(right);
  EXPECT_TRUE(watch->none());
  watch.reset();
  producer.join();
}

TEST(Allocation, after_warm_up_there_is_none_over_epochs_too) {
  for (const std::uint32_t threads : {0U, 1U, 3U}) {
    EchoBuffer buffer({.plan = {.capacity = 64, .factor = 3.0, .unique_in_batch = threads == 3, .batch_size = 16},
                       .leaves = {8, 600},
                       .with_info = true,
                       .threads = threads});
    expect_no_allocations(buffer);
  }
  EchoQueue queue({.plan = {.capacity = 8, .factor = 3.0}, .prefetch = 8});
  expect_no_allocations(queue);
}

std::thread::id consumers_thread;
std::atomic<int> calls_of_consumer{0};

int count_call() {
  calls_of_consumer += std::this_thread::get_id() == consumers_thread ? 1 : 0;
  return 0;
}

TEST(Allocation, a_batch_that_the_consumer_makes_whole_is_the_consumers_to_send) {
  constexpr Uploads::Runtime kRuntime{.set_device = [](int /*device*/) { return count_call(); },
                                      .exchange_capture_mode = [](int* /*mode*/) { return count_call(); },
                                      .wait_event = [](void*, void*, unsigned) { return count_call(); },
                                      .copy = [](void*, const void*, std::size_t, int, void*) { return count_call(); },
                                      .record = [](void*, void*) { return count_call(); },
                                      .query = [](void*) { return 0; }};
  EchoConfig config{.plan = {.capacity = 8, .factor = 2.5, .batch_size = 7}, .leaves = {8, 24 * 24}, .threads = 1};
  const ops::ArrayType item{.element = ops::Element::kUint8, .shape = {24, 24}};
  const ops::Operation resize{.kind = ops::Kind::kResize, .axes = {0, 1}, .sizes = {5, 5}};
  set_program(config, 1, std::make_shared<const ops::Program>(item, std::vector{resize}));
  config.uploads = std::make_shared<Uploads>(kRuntime, 0, nullptr);
  config.batch_memory = [](std::size_t size_bytes, Upload& /*upload*/) { return HostMemory(size_bytes); };
  EchoBuffer buffer(config);
  std::thread consumer([&] {  // which has no memory of other tests, as the worker
    consumers_thread = std::this_thread::get_id();
    aligned_fail = true;
    put_blank(buffer, 7);
    buffer.input().close();
    Lease lease;
    EXPECT_THROW(static_cast<void>(buffer.acquire(lease, kNever)), std::bad_alloc);
    aligned_fail = false;
    ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
    EXPECT_EQ(lease.upload().error, Upload::kUnsent);
    EXPECT_EQ(calls_of_consumer, 0);
  });
  consumer.join();
}

constexpr std::size_t kFixedBytes = 10'240;  // the objects that do not depend on the configuration

// Entries of the plan, rings and uses as well as slots and batches.
TEST(Allocation, max_bytes_covers_everything_that_grows_with_the_configuration) {
  const std::vector<LeafFormat> leaves{1};
  static_cast<void>(worth_streaming(0, 0));  // reads files once, and
  static_cast<void>(machine_bytes());
  static_cast<void>(machine_cores());
  static_cast<void>(Placement::for_slots());
  for (EchoConfig config :
       {EchoConfig{.plan = {.capacity = 20'000, .factor = 29.5, .batch_size = 2}, .leaves = leaves},
        EchoConfig{.plan = {.capacity = 4000, .unique_in_batch = true, .batch_size = 3000}, .leaves = leaves},
        EchoConfig{.leaves = leaves, .prefetch = 300, .threads = 3},
        EchoConfig{.plan = {.batch_size = 2}, .leaves = leaves, .threads = 0, .slots_ahead = 50'000}}) {
    config.max_bytes = min_bytes_of(config);
    const AllocationWatch watch;
    EchoBuffer buffer(config);
    const std::size_t heap = heap_bytes.load();
    std::size_t slots = 0;
    std::array<Reservation, 64> group{};
    for (std::uint32_t count = 0; buffer.input().try_reserve(group, count) == Outcome::kOk; slots += count) {
    }
    const std::size_t mapped = HostMemory::rounded_bytes(slots * buffer.layout().slot_bytes()) +
                               buffer.stats().batch_blocks * HostMemory::rounded_bytes(buffer.layout().batch_bytes());
    EXPECT_LE(heap + mapped, config.max_bytes + kFixedBytes);
  }
}

std::size_t bytes_of_plan(const PlanConfig& config) {
  const AllocationWatch watch;
  const Plan plan(config);
  return heap_bytes.load();
}

TEST(Allocation, a_plan_tells_what_it_takes) {
  constexpr double kFixedBytes = 6000;  // of short lists
  PlanConfig config{.capacity = 2000, .slots = 5000, .factor = 4, .unique_in_batch = true, .batch_size = 300};
  EXPECT_NEAR(bytes_of_plan(config), Plan::size_bytes(config), kFixedBytes);
  config.min_uses = 1;
  EXPECT_NEAR(bytes_of_plan(config), Plan::size_bytes(config), kFixedBytes);
}

}  // namespace
}  // namespace pyecho::test
