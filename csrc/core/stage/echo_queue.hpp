// Batch echoing: the stage that emits slot numbers in echoed, shuffled order. The items of the slots stay with the
// caller and are never copied.
//
//     producers ──▶ SlotRing ──▶ Feed ──▶ Plan ──▶ consumer
//
// There are no threads in here. The consumer plans some uses ahead, and a repeat is a few arithmetic operations.
//
//     EchoQueue queue(config);
//     Reservation r;                                    // any thread(s)
//     SlotRing& input = queue.input();
//     if (input.reserve(r, kNever) == Outcome::kOk) { item[r.slot] = ...; input.commit(r); }
//     input.close();
//     Use use;                                          // one thread at a time
//     while (queue.next(use, kNever) == Outcome::kOk) { ... item[use.slot] ...; if (use.last) queue.release(use.slot); }
//
// With an adaptive factor a slot may also become free between two uses of its item.
//
// Epochs and passes: see EchoBuffer.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/stage/echo_config.hpp"
#include "core/stage/feed.hpp"
#include "core/stage/plan_view.hpp"
#include "core/stage/slot_ring.hpp"
#include "core/stage/stats.hpp"

namespace pyecho {

class EchoQueue {
 public:
  // Throws std::bad_alloc, std::invalid_argument.
  explicit EchoQueue(const EchoConfig& config);

  // For producers: any number of threads.
  [[nodiscard]] SlotRing& input() noexcept { return ring_; }

  // -- Consumer: one thread at a time --

  // Takes the next use: kOk; kEnd at the end of an iteration (and from then on, after close()); kEmpty; kClosed after
  // stop(), and once the plan has diverged; kForked. Never blocks.
  Outcome try_next(Use& use) {
    if (next_ < ahead_ && !ring_.stopped() && !ring_.forked()) [[likely]] {
      return hand_out(use);
    }
    return plan(use);
  }
  // Same as try_next(), but waits: kTimeout instead of kEmpty.
  Outcome next(Use& use, Deadline deadline);
  // After try_next() returned kEmpty: blocks until its result may have changed. kTimeout if the deadline passed first.
  Outcome await_items(Deadline deadline) {
    return feed_.await(needed(), deadline, [] { return false; });
  }
  // True once the last iteration is over.
  [[nodiscard]] bool at_end() const noexcept { return plan_.finished(); }
  // After try_next() returned kEmpty: returns how many items must be committed before the next use.
  [[nodiscard]] std::uint64_t needed() const noexcept { return plan_.min_items(1); }
  // Frees the slot after its last use. A waiting producer may be woken only after more slots are released, or when a
  // call finds no use to return.
  void release(std::uint32_t slot) { ring_.release(std::span(&slot, 1)); }

  // -- Beginning, saving and resuming: the consumer's thread, see EchoBuffer --

  Replay begin(PlanPosition position);
  void resume(const Replay& replay);
  void set_halted(bool halted) { ring_.set_halted(halted); }
  // Returns the input of the plan, which has been fed everything that is committed. `iterations`, `uses`: taken by the
  // last of the consumers.
  PlanPosition position(std::uint64_t iterations, std::uint64_t uses) {
    feed_.drain_into(plan_);
    return plan_.position(iterations, uses);
  }
  // Calls visit(slot, number) for each item that the consumer has not had to its last use, numbered as there.
  template <class Visit>
  void each_unspent(const PlanPosition& at, const Visit& visit) const {
    for (const Use& use : std::span(uses_).first(ahead_).subspan(next_)) {
      if (use.last) {
        visit(use.slot, number_of(use.slot, at));
      }
    }
    plan_.each_item([&](std::uint32_t slot, std::uint64_t) { visit(slot, number_of(slot, at)); });
  }
  [[nodiscard]] std::uint64_t number_of(std::uint32_t slot, const PlanPosition& at) const noexcept {
    return plan_.number_of(slot) - at.segment.taken;
  }

  // -- Any thread --

  // Every wait ends with kClosed. Idempotent.
  void stop() { ring_.stop(); }
  [[nodiscard]] EchoStats stats() const noexcept { return counts_.stats(feed_.committed(), view_.resident()); }
  // Facts of the plan.
  [[nodiscard]] const PlanView& view() const noexcept { return view_; }

 private:
  static constexpr std::size_t kUsesAhead = 64;

  Outcome hand_out(Use& use) noexcept {
    use = uses_[next_++];
    counts_.count(1, use.ordinal == 0 ? 1 : 0);
    return Outcome::kOk;
  }
  Outcome plan(Use& use);
  Outcome draw();

  SlotRing ring_;
  Feed feed_;
  ConsumerCounts counts_;
  PlanView view_;
  Plan plan_;  // consumer only, like the next three
  std::array<Use, kUsesAhead> uses_{};
  std::uint32_t next_ = 0;   // in uses_
  std::uint32_t ahead_ = 0;  // uses in uses_
};

}  // namespace pyecho
