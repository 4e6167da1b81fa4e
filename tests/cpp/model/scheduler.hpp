// Runs a few small threads one shared-memory step at a time, in an order chosen from outside.
//
// Threads are fibers, so exactly one runs at any moment. A run depends only on the choices made: the
// thread of the next step, and the value that a load returns among all values it may still see.
// Vector clocks track happens-before, from the memory orders that the code under test passes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fiber.hpp"

namespace pyecho::model {

inline constexpr int kMaxThreads = 4;
inline constexpr int kNoThread = -1;  // set-up and tear-down, outside of all threads

// A thread's knowledge of the others: the number of steps of each that happened before its own next step.
struct VectorClock {
  std::array<std::uint32_t, kMaxThreads> steps{};

  void join(const VectorClock& other) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      steps[i] = std::max(steps[i], other.steps[i]);
    }
  }
};

// One step of one thread, to check whether it happened before the current step.
struct Moment {
  int thread = kNoThread;
  std::uint32_t step = 0;
};

// Thrown to end a body after its run was aborted, if the code under test would continue to wait.
struct Aborted {};

// Makes the choices of a run. Choice 0 is always the default (stay on the thread, read the latest value).
class Chooser {
 public:
  Chooser() = default;
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;
  virtual ~Chooser() = default;
  virtual std::uint32_t choose(std::uint32_t options) = 0;
};

struct Limits {
  unsigned preemptions = 2;  // switches away from a thread that could continue
  unsigned stale_reads = 1;  // loads that return an older value than the latest
  unsigned steps = 5000;     // more than any thread needs; beyond this there is no progress
};

class Scheduler {
 public:
  explicit Scheduler(Limits limits) : limits_(std::move(limits)) {
    current_ = this;
    for (int thread = 0; thread < kMaxThreads; ++thread) {
      fibers_[static_cast<std::size_t>(thread)].start([this, thread] { live(thread); }, main_);
    }
  }
  ~Scheduler() { current_ = nullptr; }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The scheduler to which the atoms of this process report, or null.
  static Scheduler* current() { return current_; }

  // Runs the threads to their ends. Returns the failures of this run.
  const std::vector<std::string>& run(std::vector<std::function<void()>> threads, Chooser& chooser) {
    chooser_ = &chooser;
    bodies_ = std::move(threads);
    failures_.clear();
    clocks_ = {};
    preemptions_ = stale_reads_ = steps_ = 0;
    aborted_ = false;
    state_.fill(State::kDone);
    std::fill_n(state_.begin(), bodies_.size(), State::kReady);
    running_ = kNoThread;
    switch_to(pick_next());
    running_ = kNoThread;
    return failures_;
  }

  void fail(std::string what) { failures_.push_back(std::move(what)); }
  void check(bool holds, const char* what) {
    if (!holds) {
      fail(what);
    }
  }
  // Called before each shared step. Another thread may run first.
  void step() {
    if (running_ == kNoThread) {
      return;
    }
    if (++steps_ > limits_.steps) {
      if (!aborted_) {
        fail("no progress");
      }
      aborted_ = true;
    }
    if (!aborted_ && preemptions_ < limits_.preemptions) {
      const auto options = ready_threads(running_);
      const std::uint32_t choice = chooser_->choose(1 + static_cast<std::uint32_t>(options.size()));
      if (choice > 0) {
        ++preemptions_;
        switch_to(options[choice - 1]);
      }
    }
    tick();
  }
  // A step without a switch, because it cannot affect other threads.
  void tick() {
    if (running_ != kNoThread) {
      ++clock().steps[static_cast<std::size_t>(running_)];
    }
  }
  // For loops that wait for another thread. Switches to the next one, which does not count as a preemption.
  void yield() {
    for (int distance = 1; distance < kMaxThreads; ++distance) {
      const int other = (running_ + distance) % kMaxThreads;
      if (state_[static_cast<std::size_t>(other)] == State::kReady) {
        return switch_to(other);
      }
    }
  }

  // -- The running thread's knowledge --

  [[nodiscard]] int thread() const { return running_; }
  [[nodiscard]] bool aborted() const { return aborted_; }
  [[nodiscard]] VectorClock& clock() { return clocks_[static_cast<std::size_t>(running_)]; }
  [[nodiscard]] Moment now() {
    return running_ == kNoThread ? Moment{} : Moment{running_, clock().steps[static_cast<std::size_t>(running_)]};
  }
  [[nodiscard]] bool happened_before(Moment moment) {
    return moment.thread == kNoThread || running_ == kNoThread ||
           moment.step <= clock().steps[static_cast<std::size_t>(moment.thread)];
  }
  // Chooses one of `options` values to read; 0 is the latest.
  std::uint32_t choose_age(std::uint32_t options) {
    if (running_ == kNoThread || options < 2 || aborted_ || stale_reads_ >= limits_.stale_reads) {
      return 0;
    }
    const std::uint32_t age = chooser_->choose(options);
    stale_reads_ += age > 0 ? 1 : 0;
    return age;
  }

  // Makes a choice of the outside world, such as whether a deadline passes.
  std::uint32_t choose(std::uint32_t options) { return aborted_ ? 0 : chooser_->choose(options); }

  // -- Blocking, for models of mutexes and condition variables --

  // Suspends the running thread until wake(). Returns false if all threads are asleep, so that none can wake it.
  bool sleep() {
    state_[static_cast<std::size_t>(running_)] = State::kAsleep;
    switch_to(pick_next());
    return !aborted_;
  }
  // Same as sleep(), but the thread may also continue by itself at any time.
  void pause() {
    if (!aborted_) {
      switch_to(pick_next());
    }
  }
  void wake(int thread) {
    if (state_[static_cast<std::size_t>(thread)] == State::kAsleep) {
      state_[static_cast<std::size_t>(thread)] = State::kReady;
    }
  }

 private:
  enum class State : unsigned char { kReady, kAsleep, kDone };

  [[nodiscard]] std::vector<int> ready_threads(int except) const {
    std::vector<int> threads;
    for (int thread = 0; thread < kMaxThreads; ++thread) {
      if (thread != except && state_[static_cast<std::size_t>(thread)] == State::kReady) {
        threads.push_back(thread);
      }
    }
    return threads;
  }

  // Returns the thread that continues when the running one cannot; kNoThread when all are done.
  int pick_next() {
    auto ready = ready_threads(kNoThread);
    if (ready.empty()) {
      for (int thread = 0; thread < kMaxThreads; ++thread) {
        if (state_[static_cast<std::size_t>(thread)] == State::kAsleep) {
          if (!aborted_) {
            fail("every thread is asleep");
          }
          aborted_ = true;  // from here on sleep() returns at once, so that all bodies end
          wake(thread);
        }
      }
      ready = ready_threads(kNoThread);
      if (ready.empty()) {
        return kNoThread;
      }
    }
    return ready[chooser_->choose(static_cast<std::uint32_t>(ready.size()))];
  }

  void switch_to(int thread) {
    Fiber& from = running_ == kNoThread ? main_ : fibers_[static_cast<std::size_t>(running_)];
    Fiber& to = thread == kNoThread ? main_ : fibers_[static_cast<std::size_t>(thread)];
    const int self = running_;
    running_ = thread;
    if (&from != &to) {
      from.switch_to(to);
    }
    running_ = self;
  }

  // The loop of a fiber: one body per run.
  void live(int thread) {
    for (;;) {
      running_ = thread;
      try {
        bodies_[static_cast<std::size_t>(thread)]();
      } catch (const Aborted&) {  // the run has already failed
      }
      state_[static_cast<std::size_t>(thread)] = State::kDone;
      switch_to(pick_next());
    }
  }

  static inline Scheduler* current_ = nullptr;

  Limits limits_;
  Chooser* chooser_ = nullptr;
  Fiber main_;
  std::array<Fiber, kMaxThreads> fibers_;
  std::array<State, kMaxThreads> state_{};
  std::array<VectorClock, kMaxThreads> clocks_{};
  std::vector<std::function<void()>> bodies_;
  std::vector<std::string> failures_;
  int running_ = kNoThread;
  unsigned preemptions_ = 0;
  unsigned stale_reads_ = 0;
  unsigned steps_ = 0;
  bool aborted_ = false;
};

}  // namespace pyecho::model
