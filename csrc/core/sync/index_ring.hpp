// A bounded first-in first-out ring of slot numbers, lock-free, for any number of threads on either side.
//
// A push scans the cells (stamped_cells.hpp) from the write position until one is not empty, claims the sequences
// before that one with a single compare-and-swap of the 64-bit position, then fills their cells. A pop does the same
// with full cells from the read position, then empties them. Each cell says whether it is full or empty, so neither side
// reads the other's position.
//
// Only a thread that has claimed a sequence changes its cell. A claim succeeds only if the position has not moved since
// it was loaded, so the cells have not changed since they were read. Stamps are lap numbers modulo 2^31. That is enough,
// because the claim compares the whole sequence, so a thread that slept through 2^31 laps fails its claim.
//
// variable | written by            | read by         | order            | pairs with | why
// write_   | pushing threads       | pushing threads | relaxed          | -          | only claims positions
// read_    | popping threads       | popping threads | relaxed          | -          | only claims positions
// cell     | push [W1]             | pop [R1]        | release, acquire | W1 -> R1   | the pusher's writes to the slot
//          |                       |                 |                  |            | happen before the popper's use
// cell     | pop [R2]              | push [W2]       | release, acquire | R2 -> W2   | the popper is done with the cell
//          |                       |                 |                  |            | before it is filled again
//
// try_push and try_pop never block, never allocate and never throw. They are lock-free in this sense: a thread that
// stalls between its claim and its cell stores delays only threads that need the same cells. So if several threads pop,
// a push during one of their calls may report full although a later pop is complete. If several threads push, a pop may
// likewise find too few numbers. With one thread on the other side the answers are exact.
#pragma once

#include <cstdint>
#include <span>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"
#include "core/sync/stamped_cells.hpp"

namespace pyecho {

template <template <class> class Atom = std::atomic>
class IndexRing {
 public:
  // `first_sequence` exists so that tests can start near the end of the number range.
  explicit IndexRing(std::uint32_t min_capacity, std::uint64_t first_sequence = 0)
      : cells_(min_capacity, first_sequence), write_(first_sequence), read_(first_sequence) {}

  [[nodiscard]] std::uint32_t capacity() const noexcept { return cells_.size(); }

  // Pushes as many of `indices` as fit, in order. Returns the number pushed, 0 if the ring is full.
  std::uint32_t try_push(std::span<const std::uint32_t> indices) noexcept {
    const auto [first, count] = claim(write_, [&](std::uint64_t sequence) {
      return cells_.visit(sequence, indices.size(), [](std::uint32_t, Cell cell) { return awaits(cell); });
    });
    return cells_.visit(first, count, [&](std::uint32_t i, Cell cell) { return fill(cell, indices[i]); });
  }
  // kOk or kFull.
  Outcome try_push(std::uint32_t index) noexcept {
    Cell cell{};
    const Range range = claim(write_, [&](std::uint64_t sequence) -> std::uint32_t {
      cell = cells_.of(sequence);
      return awaits(cell) ? 1 : 0;
    });
    return range.count == 1 && fill(cell, index) ? Outcome::kOk : Outcome::kFull;
  }

  // Pops up to indices.size() numbers into `indices`. Returns the number popped, 0 if the ring is empty. The rest of
  // `indices` is unspecified.
  std::uint32_t try_pop(std::span<std::uint32_t> indices) noexcept {
    const auto [first, count] = claim(read_, [&](std::uint64_t sequence) {
      return cells_.visit(sequence, indices.size(),
                          [&](std::uint32_t i, Cell cell) { return holds(cell, indices[i]); });
    });
    return cells_.visit(first, count, [](std::uint32_t, Cell cell) { return clear(cell); });
  }
  // kOk, or kEmpty with `index` unchanged.
  Outcome try_pop(std::uint32_t& index) noexcept {
    Cell cell{};
    std::uint32_t popped = 0;
    const Range range = claim(read_, [&](std::uint64_t sequence) -> std::uint32_t {
      cell = cells_.of(sequence);
      return holds(cell, popped) ? 1 : 0;
    });
    if (range.count == 0) {
      return Outcome::kEmpty;
    }
    clear(cell);
    index = popped;
    return Outcome::kOk;
  }

  // Exact if no other thread pushes or pops during the call, otherwise an estimate.
  [[nodiscard]] std::uint64_t approx_size() const noexcept {
    const std::uint64_t read = read_.load_relaxed();
    const std::uint64_t write = write_.load_relaxed();
    return write > read ? write - read : 0;
  }

 private:
  using Cell = typename StampedCells<Atom>::Cell;
  struct Range {
    std::uint64_t first;
    std::uint32_t count;
  };

  // Claims the next sequences of `position` for the calling thread. `look(first)` returns how many from `first` on can
  // be claimed now. Returns none if `look` returned 0 for the position's current value.
  template <class Look>
  static Range claim(Sequence<Atom>& position, const Look& look) noexcept {
    std::uint64_t first = position.load_relaxed();
    for (;;) {
      if (const std::uint32_t count = look(first); count > 0) {
        if (position.try_claim_relaxed(first, first + count)) {
          return {first, count};
        }
      } else if (const std::uint64_t now = position.load_relaxed(); now == first) {
        return {first, 0};
      } else {
        first = now;  // another thread took this sequence
      }
    }
  }

  static bool awaits(Cell cell) noexcept {
    return StampedIndex::unpack(cell.word->load_acquire()).stamp == cell.empty;  // [W2] pairs with [R2]
  }
  static bool fill(Cell cell, std::uint32_t index) noexcept {
    cell.word->store_release(StampedIndex{cell.empty + 1, index}.pack());  // [W1] pairs with [R1]
    return true;
  }
  static bool holds(Cell cell, std::uint32_t& index) noexcept {
    const StampedIndex held = StampedIndex::unpack(cell.word->load_acquire());  // [R1] pairs with [W1]
    index = held.index;
    return held.stamp == cell.empty + 1;
  }
  static bool clear(Cell cell) noexcept {
    cell.word->store_release(StampedIndex{cell.empty + 2, 0}.pack());  // [R2] pairs with [W2]
    return true;
  }

  StampedCells<Atom> cells_;  // both sides
  Sequence<Atom> write_;      // advanced by pushing threads: next sequence to fill
  Sequence<Atom> read_;       // advanced by popping threads: next sequence to empty
};

}  // namespace pyecho
