#include "core/stage/workers_driver.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace pyecho {
namespace {

// Flag of an entry of ready_ that ends the last iteration. The rest of an entry is a cell of in_flight_.
constexpr std::uint32_t kLastEnd = 1U << 31;

// Tries to get the lock for some microseconds without sleeping, because planning takes no longer unless the source is
// slow. Returns false if that failed.
bool lock_soon(std::unique_lock<std::mutex>& lock) {
  static const int looks = std::thread::hardware_concurrency() < 2 ? 1 : 200;
  for (int look = 0; look < looks; ++look) {
    if (lock.try_lock()) {
      return true;
    }
    relax_processor();
  }
  return false;
}

void lock(std::unique_lock<std::mutex>& lock) {
  if (!lock_soon(lock)) {
    lock.lock();
  }
}

}  // namespace

WorkersDriver::WorkersDriver(Executor& executor, SlotPool& slots, BatchPool& batches, std::uint32_t threads,
                             std::uint32_t depth, bool consumer_helps, std::uint64_t wake_items)
    : executor_(executor),
      slots_(slots),
      batches_(batches),
      depth_(depth),
      consumer_helps_(consumer_helps),
      wake_items_(wake_items),
      ready_(depth),
      in_flight_(ready_.capacity()) {
  try {
    for (std::uint32_t worker = 0; worker < threads; ++worker) {
      workers_.emplace_back([this] { work(); });
    }
  } catch (...) {
    join();
    throw;
  }
}

WorkersDriver::~WorkersDriver() { join(); }

void WorkersDriver::join() {
  if (workers_.empty()) {
    return;  // a forked child; a thread that stayed in the parent may hold a lock
  }
  ending_.store_release(1);
  alert();
  resumed_.advance();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

// Leaks the thread handles. They may by now name threads of this process, so they must be neither joined nor detached.
void WorkersDriver::abandon_threads() noexcept {
  static_cast<void>(new (std::nothrow) std::vector<std::thread>(std::move(workers_)));
  workers_.clear();
}

// ---------------------------------------------------------------- making batches

void WorkersDriver::work() {
  for (std::uint64_t resumes = 1;; ++resumes) {
    parked_.advance();
    static_cast<void>(resumed_.await(resumes, kNever, WaitStrategy::sleep(), [] { return false; }));
    if (ending_.load_acquire() != 0) {
      return;
    }
    for (bool parked = false; !parked;) {
      std::unique_lock turn(turn_, std::defer_lock);
      lock(turn);
      Outcome outcome = make(turn);
      while (outcome != Outcome::kOk && outcome != Outcome::kClosed) {  // keeps the turn
        await(outcome);
        outcome = make(turn);
      }
      parked = outcome == Outcome::kClosed;
    }
  }
}

// Plans, copies and publishes a batch, or the end of an iteration. Needs the turn, and releases it if it returns kOk.
// kFull: the consumer must take a batch first. Other outcomes: see Executor::plan().
Outcome WorkersDriver::make(std::unique_lock<std::mutex>& turn) {
  if (next_number_ >= taken_.read() + depth_) {
    return slots_.stopped() ? Outcome::kClosed : Outcome::kFull;
  }
  returns_seen_ = batches_.returns();  // before the attempt, so that a return between the two ends the wait for a block
  Batch* batch = nullptr;
  const Outcome outcome = executor_.plan(batch);
  if (outcome != Outcome::kOk && outcome != Outcome::kEnd) {
    return outcome;
  }
  const bool last = outcome == Outcome::kEnd && executor_.finished();
  const std::uint64_t number = next_number_++;
  turn.unlock();
  if (batch != nullptr) {
    executor_.copy(*batch);
  }
  const auto cell = static_cast<std::uint32_t>(number % in_flight_.size());
  in_flight_[cell] = batch;
  ready_.publish(number, last ? cell | kLastEnd : cell);
  ready_count_.advance();
  return Outcome::kOk;
}

// Sleeps until make(), which returned `lacking`, may succeed.
void WorkersDriver::await(Outcome lacking) {
  const auto stopped = [this] { return slots_.stopped(); };
  slots_.announce_released();
  if (lacking == Outcome::kExhausted) {
    ready_count_.alert();  // the consumer may be waiting for a batch that cannot be made
    static_cast<void>(batches_.await_return(returns_seen_, kNever, stopped));
  } else if (lacking == Outcome::kFull) {
    static_cast<void>(taken_.await(next_number_ - depth_ + 1, kNever, WaitStrategy::spin_then_sleep(), stopped));
  } else {
    static_cast<void>(slots_.await_items(std::min(executor_.needed(), wake_items_), kNever));
  }
}

// Makes a batch in the consumer's thread, which would otherwise be idle. Returns false if that is not possible now.
bool WorkersDriver::help() {
  std::unique_lock turn(turn_, std::defer_lock);
  if (!consumer_helps_ || !lock_soon(turn)) {
    return false;
  }
  const bool made = make(turn) == Outcome::kOk;
  slots_.announce_released();
  return made;
}

// ---------------------------------------------------------------- consumer

Outcome WorkersDriver::try_acquire(Batch*& batch) {
  std::uint32_t entry = 0;
  if (at_end()) {
    return Outcome::kEnd;
  }
  if (ready_.try_take(entry) != Outcome::kOk) {
    return batches_.exhausted() ? Outcome::kExhausted : Outcome::kEmpty;
  }
  batch = in_flight_[entry & ~kLastEnd];
  taken_.advance();
  at_end_.store_relaxed((entry & kLastEnd) != 0);
  return batch == nullptr ? Outcome::kEnd : Outcome::kOk;
}

Outcome WorkersDriver::acquire(Batch*& batch, Deadline deadline) {
  for (;;) {
    // Read before the attempt, so that a batch published between the two ends the wait below.
    const std::uint64_t seen = ready_count_.read();
    if (slots_.stopped()) {
      return Outcome::kClosed;
    }
    if (const Outcome outcome = try_acquire(batch); outcome != Outcome::kEmpty) {
      return outcome;
    }
    if (help()) {
      continue;
    }
    const Outcome outcome =
        ready_count_.await(std::max(seen, ready_.taken()) + 1, deadline, WaitStrategy::spin_then_sleep(),
                           [this] { return slots_.stopped() || batches_.exhausted(); });
    if (outcome == Outcome::kTimeout) {
      const Outcome last = try_acquire(batch);
      return last == Outcome::kEmpty ? Outcome::kTimeout : last;
    }
  }
}

// ---------------------------------------------------------------- stop and start

void WorkersDriver::alert() {
  ready_count_.alert();
  taken_.alert();
  batches_.alert();
}

void WorkersDriver::park() {
  // Workers park once before the first resume() and once after each.
  const std::uint64_t parks = (resumed_.read() + 1) * workers_.size();
  static_cast<void>(parked_.await(parks, kNever, WaitStrategy::sleep(), [] { return false; }));
  for (std::uint32_t entry = 0; ready_.try_take(entry) == Outcome::kOk;) {
    taken_.advance();
    if (Batch* const batch = in_flight_[entry & ~kLastEnd]; batch != nullptr) {
      batches_.give_back(batch, false);
    }
  }
  at_end_.store_relaxed(false);
}

void WorkersDriver::resume() { resumed_.advance(); }

}  // namespace pyecho
