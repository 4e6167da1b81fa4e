#include "core/stage/driver.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "core/trace/recorder.hpp"

namespace pyecho {
namespace {

constexpr auto kNotInterrupted = [] { return false; };

// A planner that was ahead of the consumer goes on once such a part of the ring is free, so that it is woken once for
// several short batches.
constexpr std::uint32_t kRefillParts = 4;

}  // namespace

Driver::Driver(SlotRing& slots, Feed& feed, Planner& planner, Gather& gather, BatchPool& batches, DriverLimits limits)
    : slots_(slots),
      feed_(feed),
      planner_(planner),
      gather_(gather),
      batches_(batches),
      limits_(limits),
      at_once_(planner.adaptive() ? 1 : std::max(1U, limits.threads + (limits.consumer_helps ? 1 : 0))),
      ring_(limits.depth) {
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
    while (step()) {
    }
  }
}

// A worker's step: copies a batch, or plans, waiting for what it lacks. Returns false if the worker has to park.
bool Driver::step() {
  if (!slots_.quiet() && gather_next()) {
    return true;
  }
  std::unique_lock turn(turn_, std::defer_lock);
  const bool taken = take_turn_soon(turn);
  if (ring_.waiting() > 0 && !slots_.quiet()) {
    return true;
  }
  if (!taken) {
    turn.lock();
    if (ring_.waiting() > 0 && !slots_.quiet()) {
      return true;
    }
  }
  Outcome outcome = plan();
  while (outcome != Outcome::kOk && outcome != Outcome::kClosed) {  // keeps the turn
    static_cast<void>(await(outcome, kNever));
    outcome = plan();
  }
  return outcome == Outcome::kOk;
}

// Tries to get the turn for some microseconds without sleeping, because planning takes no longer unless the source is
// slow. Returns false if that failed, at once if a batch is planned that nobody copies.
bool Driver::take_turn_soon(std::unique_lock<Turn>& turn) {
  static const int looks = std::thread::hardware_concurrency() < 2 ? 1 : 200;
  for (int look = 0; look < looks; ++look) {
    if (turn.try_lock()) {
      return true;
    }
    if (ring_.waiting() > 0) {
      return false;
    }
    relax_processor();
  }
  return false;
}

// Copies the next batch that is planned. Returns false if there is none.
bool Driver::gather_next() {
  Ring::Claim claim;
  if (!ring_.claim(claim)) {
    return false;
  }
  if (!is_end(claim.item)) {
    try {
      gather_.copy(*claim.item);
    } catch (const std::bad_alloc&) {  // take() tries again, in a thread that can tell of it
    }
  }
  ring_.publish(claim);
  return true;
}

// Plans batches, or ends of iterations, until enough wait to be copied. Needs the turn. kOk if there is at least one.
// kFull: the consumer must take a batch first. Other outcomes: see Planner::next().
Outcome Driver::plan() {
  for (bool alone = true;; alone = false) {
    if (ring_.full()) {
      return !alone ? Outcome::kOk : slots_.quiet() ? Outcome::kClosed : Outcome::kFull;
    }
    returns_seen_ = batches_.returns();  // before the attempt, so that a return between ends the wait for a block
    awaits_seen_ = awaits_.load_acquire();
    Batch* batch = nullptr;
    const bool none_ready = ring_.untaken() == 0;
    // If the source lags, make a batch of repeats as soon as the consumer has taken the last one, so that it need not
    // wait for the copy.
    const bool awaited = none_ready && (lags_ || led_by_consumer() || awaits_seen_ % 2 == 1);
    const Outcome outcome = planner_.next(batch, awaited, alone);
    if (outcome == Outcome::kOk) {
      // From a batch of repeats until the source is ahead of the consumer.
      lags_ = planner_.repeats(*batch) || (lags_ && none_ready);
    } else if (outcome == Outcome::kEnd) {
      batch = &ends_[planner_.finished() ? 1 : 0];
    } else {
      return alone ? outcome : Outcome::kOk;
    }
    ring_.plan(batch);
    if (ring_.waiting() >= at_once_) {
      return Outcome::kOk;
    }
  }
}

// Sleeps until the next step, after one that returned `lacking`, may succeed.
Outcome Driver::await(Outcome lacking, Deadline deadline) {
  const auto quiet = [this] { return slots_.quiet(); };
  slots_.announce_released();
  if (lacking == Outcome::kExhausted) {
    ring_.ready().alert();  // the consumer may be waiting for a batch that cannot be made
    return batches_.await_return(returns_seen_, deadline, quiet);
  }
  if (lacking == Outcome::kFull) {
    const std::uint64_t room = planner_.adaptive() ? 1 : std::max(1U, limits_.depth / kRefillParts);
    return ring_.taken().await(ring_.planned() - limits_.depth + room, deadline, WaitStrategy::spin_then_sleep(),
                               quiet);
  }
  return feed_.await(std::min(planner_.needed(), limits_.wake_items), deadline, [this] {
    const std::uint64_t awaits = awaits_.load_acquire();
    return (lags_ || awaits % 2 == 1) && awaits != awaits_seen_;
  });
}

// Makes a batch in the consumer's thread, which would otherwise be idle. Returns false if that is not possible now.
bool Driver::help() {
  if (led_by_consumer() || !limits_.consumer_helps) {
    return false;
  }
  if (gather_next()) {
    return true;
  }
  std::unique_lock turn(turn_, std::defer_lock);
  if (take_turn_soon(turn)) {
    if (ring_.waiting() == 0) {
      static_cast<void>(plan());
      slots_.announce_released();  // plan() may have copied rows
    }
    turn.unlock();
  }
  return gather_next();
}

// ---------------------------------------------------------------- consumer

// Plans the next batch, which take() then copies.
Outcome Driver::lead() {
  lacking_ = plan();
  if (lacking_ == Outcome::kOk) {
    ring_.pass();
    return Outcome::kOk;
  }
  slots_.announce_released();  // plan() may have copied rows and so released slots
  return lacking_ == Outcome::kExhausted && !batches_.exhausted() ? Outcome::kEmpty : lacking_;
}

// Takes a batch that is ready, and makes it whole if it is not.
Outcome Driver::take(Batch*& batch) {
  const bool tells = planner_.adaptive() && !led_by_consumer();
  batch = ring_.front();
  if (batch == nullptr) {
    if (tells) {
      set_awaited(true);
    }
    return batches_.exhausted() ? Outcome::kExhausted : Outcome::kEmpty;
  }
  const bool end = is_end(batch);
  if (end) {
    slots_.announce_released();  // items may have left before it, and this thread may leave the stage now
  } else {
    gather_.copy(*batch, true);
  }
  ring_.take();
  if (tells) {
    set_awaited(false);  // a worker may now make the next one of repeats, while the consumer uses this one
  }
  at_end_.store_relaxed(batch == &ends_[1]);
  return end ? Outcome::kEnd : Outcome::kOk;
}

// Tells the planner that the consumer waits for a batch (idempotent), or has taken one.
void Driver::set_awaited(bool awaited) {
  const std::uint64_t awaits = awaits_.load_relaxed();
  const bool awaited_before = awaits % 2 == 1;
  if (!awaited || !awaited_before) {
    awaits_.store_release(awaits + (awaited == awaited_before ? 2 : 1));
    feed_.alert();
  }
}

Outcome Driver::try_acquire(Batch*& batch) {
  if (slots_.stopped()) {
    return Outcome::kClosed;
  }
  if (at_end()) {
    return Outcome::kEnd;
  }
  if (led_by_consumer() && ring_.untaken() == 0) {
    if (const Outcome outcome = lead(); outcome != Outcome::kOk) {
      return outcome;
    }
  }
  return take(batch);
}

Outcome Driver::acquire(Batch*& batch, Deadline deadline) {
  for (bool late = false;;) {
    // Read before the attempt, so that a batch published between the two ends the wait below.
    const std::uint64_t seen = ring_.ready().read();
    if (const Outcome outcome = try_acquire(batch); outcome != Outcome::kEmpty) {
      return outcome;
    }
    if (late) {
      return Outcome::kTimeout;
    }
    if (help()) {
      continue;
    }
    const Outcome waited =
        led_by_consumer()
            ? await(lacking_, deadline)
            : ring_.ready().await(std::max(seen, ring_.taken().read()) + 1, deadline, WaitStrategy::spin_then_sleep(),
                                  [this] { return slots_.quiet() || batches_.exhausted(); });
    late = waited == Outcome::kTimeout || slots_.halted();
  }
}

// ---------------------------------------------------------------- stop and start

void Driver::alert() {
  ring_.ready().alert();
  ring_.taken().alert();
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

const Plan& Driver::settle(std::vector<const Batch*>& batches) {
  ring_.each_untaken([&](Batch* batch) {
    if (!is_end(batch)) {
      gather_.copy(*batch, true);
      batches.push_back(batch);
    }
  });
  return planner_.settle(batches);
}

Replay Driver::begin(PlanPosition position) {
  park();
  awaits_.store_release(awaits_.load_relaxed() / 2 * 2 + 2);
  lags_ = false;
  ring_.each_untaken([this](Batch* batch) {
    if (!is_end(batch)) {
      batches_.give_back(batch, false);
    }
  });
  ring_.clear();
  return planner_.begin(std::move(position));
}

void Driver::resume(const Replay& replay) {
  planner_.resume(replay);
  at_end_.store_relaxed(planner_.finished());
}

}  // namespace pyecho
