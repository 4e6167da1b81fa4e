// An atomic word and a plain variable that report every access to the scheduler.
//
// `Atom` keeps the history of its stores. A load may return any of them that coherence and
// happens-before leave visible to the loading thread, so relaxed loads can be stale as on real
// machines. Read-modify-writes see the latest, and continue its release sequence. (The modification
// order is the order of execution; cyclic "out of thin air" reads are not modelled.)
// `Plain` reports a data race when two accesses, one of them a write, are unordered.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "scheduler.hpp"

namespace pyecho::model {

[[nodiscard]] constexpr bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
[[nodiscard]] constexpr bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}

template <class T>
class Atom {
 public:
  explicit Atom(T initial) { stores_.push_back({initial, {}}); }
  Atom(const Atom&) = delete;
  Atom& operator=(const Atom&) = delete;

  T load(std::memory_order order) const {
    scheduler().step();
    const std::size_t oldest = oldest_visible();
    const auto visible = static_cast<std::uint32_t>(stores_.size() - oldest);
    const std::size_t read = stores_.size() - 1 - scheduler().choose_age(visible);
    seen(read);
    if (acquires(order)) {
      acquire(read);
    }
    return stores_[read].value;
  }

  void store(T value, std::memory_order order) {
    scheduler().step();
    append(value, releases(order), {});
  }

  T fetch_add(T delta, std::memory_order order) {
    return modify(order, [delta](T value) { return static_cast<T>(value + delta); });
  }
  T fetch_or(T bits, std::memory_order order) {
    return modify(order, [bits](T value) { return static_cast<T>(value | bits); });
  }
  T exchange(T desired, std::memory_order order) {
    return modify(order, [desired](T) { return desired; });
  }

  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure) {
    scheduler().step();
    const std::size_t latest = stores_.size() - 1;
    seen(latest);
    if (stores_[latest].value != expected) {
      if (acquires(failure)) {
        acquire(latest);
      }
      expected = stores_[latest].value;
      return false;
    }
    if (acquires(success)) {
      acquire(latest);
    }
    append(desired, releases(success), stores_[latest].released);
    return true;
  }

 private:
  struct Store {
    T value;
    VectorClock released;  // the knowledge that a load with acquire gets from it
  };
  struct Seen {
    Moment moment;
    std::size_t store;
  };

  static Scheduler& scheduler() { return *Scheduler::current(); }

  template <class Change>
  T modify(std::memory_order order, Change change) {
    scheduler().step();
    const std::size_t latest = stores_.size() - 1;
    const T value = stores_[latest].value;
    if (acquires(order)) {
      acquire(latest);
    }
    append(change(value), releases(order), stores_[latest].released);
    return value;
  }

  // No value is older than values that were read or written by this thread or in its past.
  [[nodiscard]] std::size_t oldest_visible() const {
    std::size_t oldest = 0;
    for (const Seen& seen : seen_) {
      if (seen.store > oldest && scheduler().happened_before(seen.moment)) {
        oldest = seen.store;
      }
    }
    return oldest;
  }
  void seen(std::size_t store) const { seen_.push_back({scheduler().now(), store}); }
  void acquire(std::size_t store) const {
    if (scheduler().thread() != kNoThread) {
      scheduler().clock().join(stores_[store].released);
    }
  }
  void append(T value, bool release, VectorClock released) {
    if (release && scheduler().thread() != kNoThread) {
      released.join(scheduler().clock());
    }
    stores_.push_back({value, released});
    seen(stores_.size() - 1);
  }

  std::vector<Store> stores_;
  mutable std::vector<Seen> seen_;
};

template <class T>
class Plain {
 public:
  Plain() = default;
  explicit Plain(T initial) : value_(initial) {}

  T read() const {
    scheduler().tick();
    check(scheduler().happened_before(written_));
    reads_.push_back(scheduler().now());
    return value_;
  }
  void write(T value) {
    scheduler().tick();
    bool ordered = scheduler().happened_before(written_);
    for (const Moment read : reads_) {
      ordered = ordered && scheduler().happened_before(read);
    }
    check(ordered);
    reads_.clear();
    written_ = scheduler().now();
    value_ = value;
  }

 private:
  static Scheduler& scheduler() { return *Scheduler::current(); }
  static void check(bool ordered) { scheduler().check(ordered, "data race"); }

  T value_{};
  Moment written_{};
  mutable std::vector<Moment> reads_;
};

}  // namespace pyecho::model
