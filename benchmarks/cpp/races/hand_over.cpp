#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "core/stage/echo_buffer.hpp"
#include "core/stage/echo_queue.hpp"
#include "races.hpp"

namespace pyecho::bench {
namespace {

// The minimum between two threads: one waits, the other notifies it.
class ConditionHandOver {
 public:
  void give() {
    {
      const std::scoped_lock lock(mutex_);
      ++given_;
    }
    changed_.notify_one();
  }
  void take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return given_ > taken_; });
    ++taken_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t given_ = 0;
  std::uint64_t taken_ = 0;
};

class QueueHandOver {
 public:
  void give() {
    Reservation reservation{};
    if (queue_.input().reserve(reservation, kNever) == Outcome::kOk) {
      queue_.input().commit(reservation);
    }
  }
  void take() {
    Use use{};
    if (queue_.next(use, kNever) == Outcome::kOk) {
      queue_.release(use.slot);
    }
  }

 private:
  EchoQueue queue_{{
      .plan = {.capacity = 1, .factor = 1.0},
  }};
};

class BufferHandOver {
 public:
  void give() {
    Reservation reservation{};
    if (buffer_.input().reserve(reservation, kNever) == Outcome::kOk) {
      buffer_.input().commit(reservation);
    }
  }
  void take() {
    Lease lease;
    static_cast<void>(buffer_.acquire(lease, kNever));
  }

 private:
  static EchoConfig config() {
    EchoConfig config;
    config.plan.factor = 1.0;
    config.leaves = {8};
    config.threads = 0;  // as loaders choose for batches this small: the consumer makes the batch itself
    return config;
  }

  EchoBuffer buffer_{config()};
};

template <class Stage>
std::vector<std::uint64_t> measure(std::uint32_t count, std::uint64_t pause_ns) {
  Stage stage;
  std::vector<Clock::time_point> given(count);
  std::vector<Clock::time_point> taken(count);
  std::thread consumer([&] {
    for (Clock::time_point& time : taken) {
      stage.take();
      time = Clock::now();
    }
  });
  for (Clock::time_point& time : given) {
    // The pause is much longer than a hand-over, so the last item has arrived.
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
    time = Clock::now();
    stage.give();
  }
  consumer.join();
  std::vector<std::uint64_t> result(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    result[i] = ns_of(taken[i] - given[i]);
  }
  return result;
}

}  // namespace

std::vector<std::uint64_t> hand_over_ns(const std::string& stage, std::uint32_t count, std::uint64_t pause_ns) {
  if (stage == "condition") {
    return measure<ConditionHandOver>(count, pause_ns);
  }
  if (stage == "queue") {
    return measure<QueueHandOver>(count, pause_ns);
  }
  if (stage == "buffer") {
    return measure<BufferHandOver>(count, pause_ns);
  }
  throw std::invalid_argument("stage must be 'condition', 'queue' or 'buffer', got '" + stage + "'");
}

}  // namespace pyecho::bench
