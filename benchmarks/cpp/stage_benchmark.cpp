// Measures a stage in a way that lets two builds be compared: a library with one function, of which compare_builds.py
// loads two.
//
// A run makes an EchoBuffer, gives it items, and takes its batches, in one thread or with a producer in another. The time
// begins with the first batch, so the buffer has its memory and its pool is full. One thread alone is measured by its
// processor time, which other programs disturb less.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "core/stage/echo_buffer.hpp"

namespace {

using pyecho::EchoBuffer;
using pyecho::Outcome;

constexpr std::size_t kSourceBytes = std::size_t{16} << 20;

struct Shape {
  std::uint32_t leaves;      // of each example
  std::uint32_t leaf_bytes;  // of each leaf
  std::uint32_t batch_size;
  std::uint32_t capacity;
  std::uint32_t factor;
  std::uint32_t threads;   // native ones, that make batches
  std::uint32_t producer;  // 0: the consumer's thread
  std::uint64_t items;
};

class Source {
 public:
  Source(EchoBuffer& buffer, std::uint64_t items)
      : buffer_(buffer), left_(items), bytes_(kSourceBytes + buffer.layout().slot_bytes()) {}

  // Puts as many items as fit, at most 32. Returns false once all are put.
  bool put() {
    const std::size_t wanted = std::min<std::uint64_t>(group_.size(), left_);
    std::uint32_t count = 0;
    if (buffer_.input().reserve(std::span(group_).first(wanted), count, pyecho::kNever) != Outcome::kOk) {
      return false;
    }
    const std::size_t size_bytes = buffer_.layout().slot_bytes();
    for (std::size_t i = 0; i < count; ++i) {
      pyecho::copy_bytes(buffer_.slot_data(group_[i].slot), bytes_.data() + at_, size_bytes,
                         buffer_.input().stream_slots());
      at_ = (at_ + size_bytes) % kSourceBytes;
    }
    buffer_.input().commit(std::span(group_).first(count));
    left_ -= count;
    if (left_ == 0) {
      buffer_.input().close();
    }
    return left_ > 0;
  }

 private:
  EchoBuffer& buffer_;
  std::uint64_t left_;
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
  std::array<pyecho::Reservation, 32> group_{};
};

double now_ns(bool alone) {
  timespec time{};
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double run(const Shape& shape) {
  const bool alone = shape.producer == 0 && shape.threads == 0;
  pyecho::EchoConfig config;
  config.leaves.assign(shape.leaves, shape.leaf_bytes);
  config.plan.batch_size = shape.batch_size;
  config.plan.capacity = shape.capacity;
  config.plan.factor = shape.factor;
  config.threads = shape.threads;
  config.slots_ahead = shape.producer == 0 ? 32 : 1;
  EchoBuffer buffer(config);
  Source source(buffer, shape.items);
  std::thread producer;
  if (shape.producer != 0) {
    producer = std::thread([&] {
      while (source.put()) {
      }
    });
  }
  std::uint64_t rows = 0;
  double start = 0;
  for (pyecho::Lease lease;;) {
    const Outcome outcome = shape.producer == 0 ? buffer.try_acquire(lease) : buffer.acquire(lease, pyecho::kNever);
    if (outcome == Outcome::kEmpty) {
      source.put();
      continue;
    }
    if (outcome != Outcome::kOk) {
      break;
    }
    if (start == 0) {
      start = now_ns(alone);
    } else {
      rows += lease.rows();
    }
    lease.reset();
  }
  const double taken_ns = now_ns(alone) - start;
  if (producer.joinable()) {
    producer.join();
  }
  return taken_ns / static_cast<double>(rows);
}

}  // namespace

// Returns the nanoseconds for each use, or -1 after an error.
extern "C" __attribute__((visibility("default"))) double pyecho_stage_ns(const Shape* shape) {
  try {
    return run(*shape);
  } catch (const std::exception&) {
    return -1;
  }
}
