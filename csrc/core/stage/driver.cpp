#include "core/stage/driver.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "core/trace/recorder.hpp"

namespace pyecho {
namespace {

constexpr auto kNotInterrupted = [] { return false; };

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

}  // namespace

Driver::Driver(Executor& executor, SlotPool& slots, BatchPool& batches, DriverLimits limits)
    : executor_(executor), slots_(slots), batches_(batches), limits_(limits), ready_(limits_.depth) {
  try {
    for (std::uint32_t worker = 0; worker < limits_.threads; ++worker) {
      workers_.emplace_back([this] { work(); });
    }
  } catch (...) {
    join();
    throw;
  }
}

Driver::~Driver() {
  if (slots_.forked()) {
    // Leaks the handles. They may by now name threads of this process, so they must be neither joined nor detached.
    static_cast<void>(new (std::nothrow) std::vector<std::thread>(std::move(workers_)));
    return;
  }
  join();
}

void Driver::join() {
  ending_.store_release(1);
  alert();
  resumed_.advance();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

// ---------------------------------------------------------------- making batches

void Driver::work() {
  trace::name_thread("pyecho-gather");
  for (std::uint64_t resumes = 1;; ++resumes) {
    parked_.advance();
    static_cast<void>(resumed_.await(resumes, kNever, WaitStrategy::sleep(), kNotInterrupted));
    if (ending_.load_acquire() != 0) {
      return;
    }
    for (bool parked = false; !parked;) {
      std::unique_lock turn(turn_, std::defer_lock);
      if (!lock_soon(turn)) {
        turn.lock();
      }
      Outcome outcome = make(turn);
      while (outcome != Outcome::kOk && outcome != Outcome::kClosed) {  // keeps the turn
        static_cast<void>(await(outcome, kNever));
        outcome = make(turn);
      }
      parked = outcome == Outcome::kClosed;
    }
  }
}

// Plans, copies and publishes a batch, or the end of an iteration. Needs the turn, and releases it if it returns kOk.
// kFull: the consumer must take a batch first. Other outcomes: see Executor::plan().
Outcome Driver::make(std::unique_lock<std::mutex>& turn) {
  if (next_number_ >= taken_.read() + limits_.depth) {
    return quiet() ? Outcome::kClosed : Outcome::kFull;
  }
  returns_seen_ = batches_.returns();  // before the attempt, so that a return between the two ends the wait for a block
  awaits_seen_ = slots_.awaits();
  Batch* batch = nullptr;
  // If the source lags, make a batch of repeats as soon as the consumer has taken the last one, so that it need not
  // wait for the copy.
  const bool awaited = next_number_ == taken_.read() && (lags_ || awaits_seen_ % 2 == 1);
  const Outcome outcome = executor_.plan(batch, awaited);
  if (outcome == Outcome::kOk) {
    lags_ = executor_.repeats(*batch);
  } else if (outcome == Outcome::kEnd) {
    batch = &ends_[executor_.finished() ? 1 : 0];
  } else {
    return outcome;
  }
  const std::uint64_t number = next_number_++;
  turn.unlock();
  if (outcome == Outcome::kOk) {
    try {
      executor_.copy(*batch);
    } catch (const std::bad_alloc&) {  // finish() tries again, in a thread that can tell of it
    }
  }
  ready_[number % limits_.depth].store_release(batch);  // [D1] pairs with [D2]
  ready_count_.advance();
  return Outcome::kOk;
}

// Sleeps until the next step, after one that returned `lacking`, may succeed.
Outcome Driver::await(Outcome lacking, Deadline deadline) {
  const auto stopped = [this] { return quiet(); };
  slots_.announce_released();
  if (lacking == Outcome::kExhausted) {
    ready_count_.alert();  // the consumer may be waiting for a batch that cannot be made
    return batches_.await_return(returns_seen_, deadline, stopped);
  }
  if (lacking == Outcome::kFull) {
    return taken_.await(next_number_ - limits_.depth + 1, deadline, WaitStrategy::spin_then_sleep(), stopped);
  }
  return slots_.await_items(std::min(executor_.needed(), limits_.wake_items), deadline, awaits_seen_, lags_);
}

// Makes a batch in the consumer's thread, which would otherwise be idle. Returns false if that is not possible now.
bool Driver::help() {
  std::unique_lock turn(turn_, std::defer_lock);
  if (led_by_consumer() || !limits_.consumer_helps || !lock_soon(turn)) {
    return false;
  }
  const bool made = make(turn) == Outcome::kOk;
  slots_.announce_released();
  return made;
}

// ---------------------------------------------------------------- consumer

// Makes a batch whole, if it is not, in the consumer's thread.
void Driver::finish(Batch& batch) {
  if (!batch.whole) {
    executor_.copy(batch, true);
  }
}

// Makes the next batch.
Outcome Driver::lead(Batch*& batch) {
  returns_seen_ = batches_.returns();
  const Outcome outcome = led_ != nullptr ? Outcome::kOk : lacking_ = executor_.plan(led_, true);
  if (outcome == Outcome::kOk) {
    finish(*led_);
    batch = std::exchange(led_, nullptr);
    return outcome;
  }
  slots_.announce_released();  // plan() may have copied rows and so released slots
  if (outcome == Outcome::kEnd) {
    at_end_.store_relaxed(executor_.finished());
  }
  return outcome == Outcome::kExhausted && !batches_.exhausted() ? Outcome::kEmpty : outcome;
}

// Takes a batch that a worker has made.
Outcome Driver::take(Batch*& batch) {
  Atomic<Batch*>& place = ready_[taken_.read() % limits_.depth];
  batch = place.load_acquire();  // [D2] pairs with [D1]
  if (batch == nullptr) {
    if (executor_.adaptive()) {
      slots_.set_awaited(true);
    }
    return batches_.exhausted() ? Outcome::kExhausted : Outcome::kEmpty;
  }
  const bool end = is_end(batch);
  if (!end) {
    finish(*batch);
  }
  place.store_relaxed(nullptr);
  taken_.advance();
  if (executor_.adaptive()) {
    slots_.set_awaited(false);  // a worker may now make the next one of repeats, while the consumer uses this one
  }
  at_end_.store_relaxed(batch == &ends_[1]);
  return end ? Outcome::kEnd : Outcome::kOk;
}

Outcome Driver::try_acquire(Batch*& batch) {
  if (slots_.stopped()) {
    return Outcome::kClosed;
  }
  if (at_end()) {
    return Outcome::kEnd;
  }
  return led_by_consumer() ? lead(batch) : take(batch);
}

Outcome Driver::acquire(Batch*& batch, Deadline deadline) {
  for (bool late = false;;) {
    // Read before the attempt, so that a batch published between the two ends the wait below.
    const std::uint64_t seen = ready_count_.read();
    if (const Outcome outcome = try_acquire(batch); outcome != Outcome::kEmpty) {
      return outcome;
    }
    if (late) {
      return Outcome::kTimeout;
    }
    if (help()) {
      continue;
    }
    const Outcome waited = led_by_consumer() ? await(lacking_, deadline)
                                             : ready_count_.await(std::max(seen, taken_.read()) + 1, deadline,
                                                                  WaitStrategy::spin_then_sleep(),
                                                                  [this] { return quiet() || batches_.exhausted(); });
    late = waited == Outcome::kTimeout || slots_.halted();
  }
}

// ---------------------------------------------------------------- stop and start

void Driver::alert() {
  ready_count_.alert();
  taken_.alert();
  batches_.alert();
}

// Waits for the workers to park.
void Driver::park() {
  // Workers park once at the start and once after each advance of resumed_.
  const std::uint64_t parks = (resumed_.read() + 1) * workers_.size();
  static_cast<void>(parked_.await(parks, kNever, WaitStrategy::sleep(), kNotInterrupted));
}

void Driver::set_halted(bool halted) {
  if (slots_.halted() == halted) {
    return;
  }
  if (halted) {
    slots_.set_halted(true);
    alert();
  }
  park();
  if (!halted) {
    slots_.set_halted(false);
    resumed_.advance();
  }
}

// Calls visit(batch) for each batch that is made, or being made, and not taken.
template <class Visit>
void Driver::each_untaken(const Visit& visit) {
  for (std::uint64_t number = taken_.read(); number < next_number_; ++number) {
    Batch* const batch = ready_[number % limits_.depth].load_acquire();  // [D2] pairs with [D1]
    if (!is_end(batch)) {
      visit(*batch);
    }
  }
  if (led_ != nullptr) {
    visit(*led_);
  }
}

const Plan& Driver::settle(std::vector<const Batch*>& batches) {
  each_untaken([&](Batch& batch) {
    finish(batch);
    batches.push_back(&batch);
  });
  return executor_.settle(batches);
}

Replay Driver::begin(PlanPosition position) {
  park();
  slots_.set_awaited(false);
  lags_ = false;
  each_untaken([this](Batch& batch) { batches_.give_back(&batch, false); });
  led_ = nullptr;
  for (; taken_.read() < next_number_; taken_.advance()) {
    ready_[taken_.read() % limits_.depth].store_relaxed(nullptr);
  }
  return executor_.begin(std::move(position));
}

void Driver::start() {
  slots_.reset();
  at_end_.store_relaxed(false);
  resumed_.advance();
}

void Driver::resume(const Replay& replay) {
  slots_.reset_halted(replay.free_slots());
  executor_.resume(replay);
  at_end_.store_relaxed(executor_.finished());
}

}  // namespace pyecho
