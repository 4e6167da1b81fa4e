// Small programs that push to and pop from an IndexRing, with everything checked that must hold.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "atom.hpp"
#include "core/sync/index_ring.hpp"
#include "explore.hpp"

namespace pyecho::model {

struct RingProgram {
  std::uint32_t capacity = 1;
  int pushers = 1;
  int poppers = 1;
  std::uint32_t items = 2;     // tried by each pusher
  std::uint32_t attempts = 2;  // made by each popper, and for each item by its pusher
  std::uint64_t first_sequence = 0;
  bool check_refusals = false;  // kFull and kEmpty must have been true at some time of the call
};

template <Threads kPushing, Threads kPopping>
class RingRun {
 public:
  explicit RingRun(const RingProgram& program)
      : program_(program),
        ring_(program.capacity, program.first_sequence),
        payload_(program.items * static_cast<std::uint32_t>(program.pushers)),
        emptied_(payload_.size()),
        popped_by_(static_cast<std::size_t>(program.poppers)) {}

  // Items are numbered pusher * items + k.
  void push_all(int pusher) {
    for (std::uint32_t k = 0; k < program_.items; ++k) {
      const std::uint32_t item = static_cast<std::uint32_t>(pusher) * program_.items + k;
      payload_[item].write(item + 1000);
      bool done = false;
      for (std::uint32_t attempt = 0; !done && attempt < program_.attempts; ++attempt) {
        done = push(item);
      }
      if (!done) {
        return;  // the ring was full: this pusher's later items must not overtake
      }
      sent_.push_back(item);
      if (kPushing == Threads::kOne && kPopping == Threads::kOne && k >= ring_.capacity()) {
        emptied_[k - ring_.capacity()].read();  // what the popper did before it emptied this cell
      }
    }
  }

  void pop_some(int popper) {
    for (std::uint32_t attempt = 0; attempt < program_.attempts; ++attempt) {
      if (kPushing == Threads::kOne && kPopping == Threads::kOne) {
        emptied_[popped_by_[0].size()].write(1);
      }
      pop(popped_by_[static_cast<std::size_t>(popper)]);
      if (popped_by_[0].size() == emptied_.size()) {
        return;
      }
    }
  }

  // When all threads are done: what is left comes out, and everything is accounted for.
  void conclude() {
    std::vector<std::uint32_t> left;
    for (std::uint32_t item = 0; ring_.try_pop(item) == Outcome::kOk;) {
      left.push_back(item);
    }
    std::vector<int> times(payload_.size(), 0);
    for (const auto& popped : popped_by_) {
      expect_order(popped);
      count(popped, times);
    }
    expect_order(left);
    count(left, times);
    for (const std::uint32_t item : sent_) {
      expect(--times[item] == 0, "an item was lost or came twice");
    }
    for (const int excess : times) {
      expect(excess == 0, "an item came that was not pushed");
    }
    if (program_.poppers == 1) {  // one popper sees every pusher's whole order
      auto all = popped_by_[0];
      all.insert(all.end(), left.begin(), left.end());
      expect_order(all);
    }
    expect(ring_.approx_size() == 0, "an empty ring has size 0");
  }

 private:
  static void expect(bool holds, const char* what) { Scheduler::current()->check(holds, what); }

  bool push(std::uint32_t item) {
    const std::uint32_t popped_before = popped_;
    const std::uint32_t begun_before = pops_begun_;
    const bool undisturbed_before = kPopping == Threads::kOne || popping_ == 0;
    ++pushing_;
    ++pushes_begun_;
    const Outcome outcome = ring_.try_push(item);
    --pushing_;
    if (outcome == Outcome::kOk) {
      ++pushed_;
    } else if (program_.check_refusals) {
      // With several poppers one may have claimed the cell and not emptied it, while others went
      // by.
      const bool undisturbed = kPopping == Threads::kOne || (undisturbed_before && begun_before == pops_begun_);
      expect(!undisturbed || pushed_ + pushing_ >= ring_.capacity() + popped_before, "kFull with room");
    }
    return outcome == Outcome::kOk;
  }

  void pop(std::vector<std::uint32_t>& popped) {
    const std::uint32_t pushed_before = pushed_;
    const std::uint32_t begun_before = pushes_begun_;
    const bool undisturbed_before = kPushing == Threads::kOne || pushing_ == 0;
    ++popping_;
    ++pops_begun_;
    std::uint32_t item = 0;
    const Outcome outcome = ring_.try_pop(item);
    --popping_;
    if (outcome == Outcome::kOk) {
      ++popped_;
      expect(payload_[item].read() == item + 1000, "wrong payload");
      popped.push_back(item);
    } else if (program_.check_refusals) {
      // With several pushers the one at the front may have claimed its cell and not filled it.
      const bool undisturbed = kPushing == Threads::kOne || (undisturbed_before && begun_before == pushes_begun_);
      expect(!undisturbed || pushed_before <= popped_ + popping_, "kEmpty with items");
    }
  }

  void expect_order(const std::vector<std::uint32_t>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (std::size_t j = i + 1; j < items.size(); ++j) {
        expect(items[i] / program_.items != items[j] / program_.items || items[i] < items[j],
               "a pusher's items came out of order");
      }
    }
  }
  static void count(const std::vector<std::uint32_t>& items, std::vector<int>& times) {
    for (const std::uint32_t item : items) {
      ++times[item];
    }
  }

  RingProgram program_;
  IndexRing<kPushing, kPopping, Atom> ring_;
  std::deque<Plain<std::uint32_t>> payload_;  // by item: written before its push, read after its pop
  std::deque<Plain<int>> emptied_;            // by pop: written before it, read by the cell's next push
  std::vector<std::vector<std::uint32_t>> popped_by_;
  std::vector<std::uint32_t> sent_;
  // The model's own view, free of races because one thread runs at a time.
  std::uint32_t pushed_ = 0;
  std::uint32_t popped_ = 0;
  std::uint32_t pushing_ = 0;
  std::uint32_t popping_ = 0;
  std::uint32_t pushes_begun_ = 0;
  std::uint32_t pops_begun_ = 0;
};

// Threads 0.. push, the ones after them pop.
template <Threads kPushing, Threads kPopping>
Program make_ring_program(const RingProgram& description) {
  auto run = std::make_shared<RingRun<kPushing, kPopping>>(description);
  Program program;
  for (int pusher = 0; pusher < description.pushers; ++pusher) {
    program.threads.push_back([run, pusher] { run->push_all(pusher); });
  }
  for (int popper = 0; popper < description.poppers; ++popper) {
    program.threads.push_back([run, popper] { run->pop_some(popper); });
  }
  program.afterwards = [run] { run->conclude(); };
  return program;
}

}  // namespace pyecho::model
