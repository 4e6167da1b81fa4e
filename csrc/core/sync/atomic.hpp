// Atomic words: the only place in pyecho that names std::memory_order.
//
// An `Atomic<T>` is one atomic word. Its operations carry their ordering in their names, so every line that touches
// shared state states its guarantee. A `Sequence` is an Atomic 64-bit counter on cache lines of its own. It only grows,
// and 64 bits never wrap (at 10^9 steps a second, after 584 years).
//
// `Atom` is std::atomic in the product. The model tests put a scheduler behind it and run the same code, one
// shared-memory step at a time, in chosen orders.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pyecho {

// Two 64-byte lines: x86 prefetches lines in pairs, and Apple's and many server Arm cores have lines of 128 bytes.
inline constexpr std::size_t kCacheLineBytes = 128;

template <class T, template <class> class Atom = std::atomic>
class Atomic {
 public:
  constexpr Atomic() noexcept : word_(T{}) {}
  constexpr explicit Atomic(T initial) noexcept : word_(initial) {}
  ~Atomic() = default;
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  // No ordering. For words that only this thread writes, for statistics, and where another word carries the order.
  [[nodiscard]] T load_relaxed() const noexcept { return word_.load(std::memory_order_relaxed); }
  void store_relaxed(T value) noexcept { word_.store(value, std::memory_order_relaxed); }
  T fetch_add_relaxed(T delta) noexcept { return word_.fetch_add(delta, std::memory_order_relaxed); }

  // Sees everything that happened before the store_release (or read-modify-write) whose value it reads.
  [[nodiscard]] T load_acquire() const noexcept { return word_.load(std::memory_order_acquire); }
  // Makes everything this thread did before visible to each thread that reads the value with acquire.
  void store_release(T value) noexcept { word_.store(value, std::memory_order_release); }

  // Read-modify-writes with both orders. All of them on one word form a single total order; the sleep/wake hand-shake
  // of EventCount relies on it.
  T fetch_add_acq_rel(T delta) noexcept { return word_.fetch_add(delta, std::memory_order_acq_rel); }
  T fetch_or_acq_rel(T bits) noexcept { return word_.fetch_or(bits, std::memory_order_acq_rel); }
  T exchange_acq_rel(T value) noexcept { return word_.exchange(value, std::memory_order_acq_rel); }

  // Claims a position. The cell at that position carries the order, not the claim. May fail spuriously; `expected` then
  // holds the current value.
  bool try_claim_relaxed(T& expected, T desired) noexcept {
    return word_.compare_exchange_weak(expected, desired, std::memory_order_relaxed, std::memory_order_relaxed);
  }
  // Same as try_claim_relaxed(), and also publishes everything this thread did before.
  bool try_replace_release(T& expected, T desired) noexcept {
    return word_.compare_exchange_weak(expected, desired, std::memory_order_release, std::memory_order_relaxed);
  }

 private:
  Atom<T> word_;
};

template <template <class> class Atom = std::atomic>
class alignas(kCacheLineBytes) Sequence : public Atomic<std::uint64_t, Atom> {
 public:
  using Atomic<std::uint64_t, Atom>::Atomic;
};

static_assert(sizeof(Sequence<>) == kCacheLineBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace pyecho
