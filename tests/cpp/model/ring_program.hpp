// Small programs that push to and pop from an IndexRing, and check every guarantee.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
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
  std::uint32_t attempts = 2;  // made by each popper, and by each pusher until one moves something
  std::array<std::uint32_t, kMaxThreads> groups{1, 1, 1, 1};  // items a call, by thread
  std::uint64_t first_sequence = 0;
  bool check_refusals = false;  // check that a call that moved too few items had a reason at some moment
};

class RingRun {
 public:
  explicit RingRun(const RingProgram& program)
      : program_(program),
        ring_(program.capacity, program.first_sequence),
        payload_(program.items * static_cast<std::uint32_t>(program.pushers)),
        knew_(payload_.size()),
        popped_by_(static_cast<std::size_t>(program.poppers)) {}

  // Items are numbered pusher * items + k.
  void push_all(int pusher) {
    std::uint32_t next = static_cast<std::uint32_t>(pusher) * program_.items;
    const std::uint32_t end = next + program_.items;
    for (std::uint32_t refusals = 0; next < end && refusals < program_.attempts;) {
      std::vector<std::uint32_t> group(std::min(program_.groups[static_cast<std::size_t>(pusher)], end - next));
      std::iota(group.begin(), group.end(), next);
      const std::uint32_t pushed = push(group);
      refusals = pushed > 0 ? 0 : refusals + 1;
      for (const std::uint32_t until = next + pushed; next < until; ++next) {
        sent_.push_back(next);
        knew_[next] = Scheduler::current()->clock();
      }
    }
  }

  void pop_some(int popper) {
    auto& popped = popped_by_[static_cast<std::size_t>(popper)];
    for (std::uint32_t attempt = 0; attempt < program_.attempts; ++attempt) {
      std::vector<std::uint32_t> group(program_.groups[static_cast<std::size_t>(program_.pushers + popper)]);
      group.resize(pop(group));
      popped.insert(popped.end(), group.begin(), group.end());
      if (popped_by_[0].size() == payload_.size()) {
        return;
      }
    }
  }

  // When all threads are done: pops the rest, and checks that every item is accounted for.
  void conclude() {
    std::vector<std::uint32_t> left;
    for (std::array<std::uint32_t, 1> item{}; ring_.try_pop(item) == 1;) {
      left.push_back(item[0]);
    }
    popped_by_.push_back(std::move(left));
    std::vector<std::uint32_t> all;
    for (const auto& popped : popped_by_) {
      expect_order(popped);
      all.insert(all.end(), popped.begin(), popped.end());
    }
    if (program_.poppers == 1) {  // the order of the sequences: every pusher's order, and the laps of each cell
      expect_order(all);
      for (std::size_t s = ring_.capacity(); s < all.size(); ++s) {
        const Moment popped = popped_at_.at(s - ring_.capacity());
        expect(popped.step <= knew_[all[s]].steps.at(static_cast<std::size_t>(popped.thread)), "filled too early");
      }
    }
    std::ranges::sort(all);
    std::ranges::sort(sent_);
    expect(all == sent_, "an item was lost, or came twice, or was not pushed");
  }

 private:
  static void expect(bool holds, const char* what) { Scheduler::current()->check(holds, what); }

  std::uint32_t push(std::span<const std::uint32_t> items) {
    for (const std::uint32_t item : items) {
      payload_[item].write(item + 1000);
    }
    const std::uint32_t popped_before = popped_;
    const std::uint32_t begun_before = pops_begun_;
    const bool undisturbed_before = popping_ == 0;
    const auto count = static_cast<std::uint32_t>(items.size());
    pushing_ += count;
    ++pushes_begun_;
    const std::uint32_t pushed = ring_.try_push(items);
    pushing_ -= count;
    pushed_ += pushed;
    if (pushed < count && program_.check_refusals) {
      // With several poppers one may have claimed the cell and not emptied it, while others passed it.
      const bool undisturbed = program_.poppers == 1 || (undisturbed_before && begun_before == pops_begun_);
      expect(!undisturbed || pushed_ + pushing_ >= ring_.capacity() + popped_before, "refused with room");
    }
    return pushed;
  }

  std::uint32_t pop(std::span<std::uint32_t> items) {
    const std::uint32_t pushed_before = pushed_;
    const std::uint32_t begun_before = pushes_begun_;
    const bool undisturbed_before = pushing_ == 0;
    const auto count = static_cast<std::uint32_t>(items.size());
    popping_ += count;
    ++pops_begun_;
    Scheduler::current()->tick();
    const Moment before = Scheduler::current()->now();
    const std::uint32_t popped = ring_.try_pop(items);
    popping_ -= count;
    popped_ += popped;
    popped_at_.insert(popped_at_.end(), popped, before);
    for (const std::uint32_t item : items.first(popped)) {
      expect(payload_[item].read() == item + 1000, "wrong payload");
    }
    if (popped < count && program_.check_refusals) {
      // With several pushers the one at the front may have claimed its cell and not filled it.
      const bool undisturbed = program_.pushers == 1 || (undisturbed_before && begun_before == pushes_begun_);
      expect(!undisturbed || pushed_before <= popped_ + popping_, "too few with items");
    }
    return popped;
  }

  void expect_order(const std::vector<std::uint32_t>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (std::size_t j = i + 1; j < items.size(); ++j) {
        expect(items[i] / program_.items != items[j] / program_.items || items[i] < items[j],
               "a pusher's items came out of order");
      }
    }
  }

  RingProgram program_;
  IndexRing<Atom> ring_;
  std::deque<Plain<std::uint32_t>> payload_;  // by item: written before its push, read after its pop
  std::vector<VectorClock> knew_;             // by item: its pusher's clock after the push
  std::vector<Moment> popped_at_;             // by pop: when its call began
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

// The first threads push, the others pop.
inline Program make_ring_program(const RingProgram& description) {
  auto run = std::make_shared<RingRun>(description);
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
