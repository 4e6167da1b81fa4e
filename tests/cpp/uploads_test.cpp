// Batches that workers send to a device, whose work runs late in a thread of its own.
#include "core/stage/uploads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/stage/echo_buffer.hpp"
#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

constexpr int kNotReady = 600;
constexpr int kFailure = 2;

// Runs work in order, a little later.
class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    issue(nullptr);
    thread_.join();
  }
  void issue(std::function<void()> work) {
    const std::scoped_lock lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void run() {
    for (std::function<void()> work;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !work_.empty(); });
        work = std::move(work_.front());
        work_.pop_front();
      }
      if (!work) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

struct Event {
  std::atomic<int> recorded = 0;
  std::atomic<int> reached = 0;
};

// The functions of a runtime; those that are not null fail instead.
std::atomic<int> failing_copy = 0;   // so many copies fail
std::atomic<int> failing_query = 0;  // and so many queries
std::atomic<int> torn = 0;           // copies whose source changed before they ran

int record(void* event, void* stream) {
  auto* const point = static_cast<Event*>(event);
  const int number = ++point->recorded;
  static_cast<Stream*>(stream)->issue([=] { point->reached = number; });
  return 0;
}

int wait_event(void* stream, void* event, unsigned /*flags*/) {
  auto* const point = static_cast<Event*>(event);
  static_cast<Stream*>(stream)->issue([point, number = point->recorded.load()] {
    while (point->reached < number) {
      std::this_thread::yield();
    }
  });
  return 0;
}

void issue_copy(void* to, const void* from, std::size_t size_bytes, void* stream) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  static_cast<Stream*>(stream)->issue([=, seen = std::vector(bytes, bytes + size_bytes)] {
    std::memcpy(to, from, size_bytes);
    torn += std::memcmp(to, seen.data(), size_bytes) == 0 ? 0 : 1;
  });
}

int copy(void* to, const void* from, std::size_t size_bytes, int /*kind*/, void* stream) {
  if (failing_copy.fetch_sub(1) > 0) {
    return kFailure;
  }
  issue_copy(to, from, size_bytes, stream);
  return 0;
}

int query(void* event) {
  if (failing_query.fetch_sub(1) > 0) {
    return kFailure;
  }
  const auto* const point = static_cast<Event*>(event);
  return point->reached == point->recorded ? 0 : kNotReady;
}

constexpr Uploads::Runtime kRuntime{.set_device = [](int /*device*/) { return 0; },
                                    .exchange_capture_mode = [](int* /*mode*/) { return 0; },
                                    .wait_event = wait_event,
                                    .copy = copy,
                                    .record = record,
                                    .query = query};

// A consumer with a stream of its own, as pyecho.device.blocks is one.
class Consumer {
 public:
  explicit Consumer(std::uint32_t threads)
      : config_{.plan = {.capacity = 20, .factor = 3, .batch_size = 8},
                .leaves = {8, 32},
                .with_info = true,
                .prefetch = 1,
                .threads = threads,
                .held = 1,
                .batch_memory = [this](std::size_t size_bytes, Upload& upload) { return block(size_bytes, upload); },
                .uploads = std::make_shared<Uploads>(kRuntime, 0, &copies_),
                .most_ahead = 1},
        buffer_(std::make_shared<EchoBuffer>(config_)) {}

  // Takes everything, checks on the stream what has arrived, and returns how many uses were right.
  std::uint64_t run(std::uint64_t items) {
    std::thread producer([this, items] {
      put(items);
      buffer_->input().close();
    });
    for (Lease lease; buffer_->acquire(lease, kNever) == Outcome::kOk; lease.reset()) {
      take(lease);
    }
    producer.join();
    sync(stream_);
    sync(copies_);
    return right_;
  }

  void put(std::uint64_t items) {
    for (std::uint64_t item = 0; item < items; ++item) {
      Reservation reservation{};
      ASSERT_EQ(buffer_->input().reserve(reservation, kNever), Outcome::kOk);
      std::memset(buffer_->slot_data(reservation.slot), static_cast<int>(item % 251), buffer_->layout().slot_bytes());
      buffer_->input().commit(reservation);
    }
  }

  // Begins again in a buffer with room for more items, as for a state.
  void grow() {
    std::shared_ptr<EchoBuffer> larger = buffer_->with_room_for(1000);
    static_cast<void>(begin_epoch(*buffer_, 0, {}));
    buffer_ = std::move(larger);
    static_cast<void>(begin_epoch(*buffer_, 0, {}));
  }

  [[nodiscard]] std::uint64_t errors() const { return errors_; }
  [[nodiscard]] std::size_t blocks() const { return memory_.size() / 2; }

 private:
  HostMemory block(std::size_t size_bytes, Upload& upload) {
    memory_.push_back(std::make_shared<std::vector<std::byte>>(size_bytes));
    for (void** const event : {&upload.free, &upload.arrived}) {
      *event = events_.emplace_back(std::make_unique<Event>()).get();
    }
    upload.to = memory_.emplace_back(std::make_shared<std::vector<std::byte>>(size_bytes))->data();
    const auto& pinned = memory_[memory_.size() - 2];
    return {pinned->data(), size_bytes, pinned};
  }

  void take(const Lease& lease) {
    Upload& upload = lease.upload();
    if (std::exchange(upload.error, 0) != 0) {  // sends it again
      ++errors_;
      wait_event(&copies_, upload.free, 0);
      issue_copy(upload.to, lease.data(), lease.layout().leaves_bytes(), &copies_);
      record(upload.arrived, &copies_);
    }
    wait_event(&stream_, upload.arrived, 0);
    const auto* const there = static_cast<const std::byte*>(upload.to);
    for (std::uint32_t row = 0; row < lease.rows(); ++row) {
      const auto value = static_cast<std::byte>(lease.uses()[row].source_index % 251);
      const std::span first(there + lease.layout().leaves()[0].batch_offset + row * 8, 8);
      const std::span second(there + lease.layout().leaves()[1].batch_offset + row * 32, 32);
      stream_.issue([this, value, first, second] {
        const auto same = [value](std::byte byte) { return byte == value; };
        right_ += std::ranges::all_of(first, same) && std::ranges::all_of(second, same) ? 1 : 0;
      });
    }
    // The same memory again, as the allocator of a stream returns what was dropped.
    record(upload.free, &stream_);
  }

  static void sync(Stream& stream) {
    Event end;
    record(&end, &stream);
    while (end.reached == 0) {
      std::this_thread::yield();
    }
  }

  std::vector<std::shared_ptr<std::vector<std::byte>>> memory_;
  std::vector<std::unique_ptr<Event>> events_;
  Stream copies_;
  Stream stream_;
  std::atomic<std::uint64_t> right_ = 0;
  std::uint64_t errors_ = 0;
  const EchoConfig config_;
  std::shared_ptr<EchoBuffer> buffer_;
};

TEST(Uploads, every_use_arrives_and_no_block_is_written_under_a_copy) {
  for (const std::uint32_t threads : {1U, 3U}) {
    torn = 0;
    Consumer consumer(threads);
    EXPECT_EQ(consumer.run(200), 600U);
    EXPECT_EQ(torn, 0);
    EXPECT_EQ(consumer.errors(), 0U);
  }
}

TEST(Uploads, a_buffer_for_a_larger_state_goes_on_with_the_blocks_there_are) {
  torn = 0;
  Consumer consumer(3);
  const std::size_t blocks = consumer.blocks();
  consumer.put(20);  // of which workers make and send batches
  consumer.grow();
  EXPECT_EQ(consumer.run(200), 600U);
  EXPECT_EQ(consumer.blocks(), blocks);
  EXPECT_EQ(torn, 0);
}

TEST(Uploads, a_copy_that_fails_is_the_consumers_to_repeat) {
  failing_copy = 3;
  Consumer consumer(2);
  EXPECT_EQ(consumer.run(100), 300U);
  EXPECT_EQ(consumer.errors(), 3U);
}

TEST(Uploads, one_query_may_fail_and_after_two_the_device_has_failed) {
  Event event;
  event.recorded = 1;
  const Uploads uploads(kRuntime, 0, nullptr);
  Upload upload{.arrived = &event};
  failing_query = 1;
  EXPECT_FALSE(uploads.passed(upload));
  EXPECT_FALSE(uploads.passed(upload)) << "the copy is under way";
  failing_query = 1;
  EXPECT_TRUE(uploads.passed(upload));
  EXPECT_EQ(upload.error, kFailure);
}

TEST(Uploads, stop_does_not_wait_for_a_stream_that_is_held) {
  std::atomic<bool> held = true;
  Event events[8];
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(8);
  Stream stream;  // ends first
  stream.issue([&] {
    while (held) {
      std::this_thread::yield();
    }
  });
  std::size_t blocks = 0;
  {
    EchoBuffer buffer({.plan = {.capacity = 4, .factor = 1000, .batch_size = 4},
                       .leaves = {8},
                       .prefetch = 1,
                       .threads = 1,
                       .held = 1,
                       .batch_memory = [&](std::size_t size_bytes, Upload& upload) -> HostMemory {
                         upload = {.free = &events[2 * blocks], .arrived = &events[2 * blocks + 1]};
                         ++blocks;
                         upload.to = memory.emplace_back(size_bytes).data();
                         return {memory.emplace_back(size_bytes).data(), size_bytes, std::make_shared<int>()};
                       },
                       .uploads = std::make_shared<Uploads>(kRuntime, 0, &stream),
                       .most_ahead = 1});
    put_blank(buffer, 4);
    Lease lease;
    for (std::size_t batch = 0; batch < blocks; ++batch) {
      ASSERT_EQ(buffer.acquire(lease, kNever), Outcome::kOk);
      lease.reset();
    }
    EXPECT_EQ(buffer.acquire(lease, Clock::now() + std::chrono::milliseconds(20)), Outcome::kTimeout)
        << "each block is under a copy";
  }
  held = false;
}

}  // namespace
}  // namespace pyecho::test
