// A bounded first-in first-out ring of slot numbers, lock-free, for one or several threads on either side.
//
// Each cell is one 64-bit word: the number it carries (low half) and a stamp (high half) that says for which lap the
// cell is empty or full. One atomic store thus publishes number and state together, and full/empty is read off the
// cell itself, so neither side reads the other's position:
//
//     sequence s, ring of 2^k cells:   cell = s mod 2^k,  lap = s / 2^k
//     stamp 2 * lap        empty, awaits the push with sequence s
//     stamp 2 * lap + 1    full, holds what that push put there
//     stamp 2 * lap + 2    popped, which is "empty" for the push one lap later
//
// A push claims a write sequence, then fills the cell; a pop claims a read sequence, then empties it. On a side with
// one thread the claim is a plain increment, on a side with several a compare-and-swap of the 64-bit sequence. Stamps
// are lap numbers modulo 2^31, which is enough: a thread that slept through 2^31 laps fails its claim, because the
// claim compares the whole sequence.
//
// variable | written by            | read by         | order            | pairs with | why
// write_   | pushing threads       | pushing threads | relaxed          | -          | only claims a position
// read_    | popping threads       | popping threads | relaxed          | -          | only claims a position
// cell     | push [W1]             | pop [R1]        | release, acquire | W1 -> R1   | what the pusher did to the slot
//          |                       |                 |                  |            | happens before the popper's use
// cell     | pop [R2]              | push [W2]       | release, acquire | R2 -> W2   | the popper is done with the cell
//          |                       |                 |                  |            | before it is filled again
//
// try_push and try_pop never block, never allocate and never throw. They are lock-free in this sense: a thread that
// stalls between its claim and its cell store delays only those who need that very cell. Therefore, on a side with
// several threads, an answer may be early while a call of another thread is in progress: kFull although a pop has begun
// to make room, kEmpty although later pushes are complete. With one thread on either side answers are exact.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>
#include <memory>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

enum class Threads : unsigned char { kOne, kMany };

// A cell of a ring: a stamp and a number in one word.
struct StampedIndex {
  std::uint32_t stamp;
  std::uint32_t index;

  [[nodiscard]] static StampedIndex unpack(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  [[nodiscard]] std::uint64_t pack() const noexcept { return (static_cast<std::uint64_t>(stamp) << 32) | index; }
};

// Maps sequences to cells and stamps. Pure arithmetic, shared by the rings.
class RingGeometry {
 public:
  // At least `min_cells` cells (1 at least, 2^31 at most), rounded up to a power of two.
  explicit RingGeometry(std::uint32_t min_cells) noexcept
      : shift_(static_cast<unsigned>(std::countr_zero(std::bit_ceil(min_cells)))) {
    assert(min_cells >= 1 && min_cells <= (1U << 31));
  }
  [[nodiscard]] std::uint32_t cells() const noexcept { return 1U << shift_; }
  [[nodiscard]] std::uint32_t cell_of(std::uint64_t sequence) const noexcept {
    return static_cast<std::uint32_t>(sequence) & (cells() - 1);
  }
  // The stamp of the cell while it awaits `sequence`; + 1: it holds it; + 2: it was emptied.
  [[nodiscard]] std::uint32_t empty_stamp(std::uint64_t sequence) const noexcept {
    return static_cast<std::uint32_t>((sequence >> shift_) << 1);
  }

 private:
  unsigned shift_;
};

template <Threads kPushing, Threads kPopping, template <class> class Atom = std::atomic>
class IndexRing {
 public:
  // `first_sequence` exists so that tests can start near the end of the number range.
  explicit IndexRing(std::uint32_t min_capacity, std::uint64_t first_sequence = 0)
      : geometry_(min_capacity),
        cells_(std::make_unique<Atomic<std::uint64_t, Atom>[]>(geometry_.cells())),
        write_(first_sequence),
        read_(first_sequence) {
    for (std::uint64_t s = first_sequence; s < first_sequence + geometry_.cells(); ++s) {
      cells_[geometry_.cell_of(s)].store_relaxed(StampedIndex{geometry_.empty_stamp(s), 0}.pack());
    }
  }

  [[nodiscard]] std::uint32_t capacity() const noexcept { return geometry_.cells(); }

  // kOk or kFull. Called by one thread (Threads::kOne) or any number (kMany).
  Outcome try_push(std::uint32_t index) noexcept {
    std::uint64_t sequence = write_.load_relaxed();
    for (;;) {
      auto& cell = cells_[geometry_.cell_of(sequence)];
      const std::uint32_t empty = geometry_.empty_stamp(sequence);
      const std::uint32_t stamp = StampedIndex::unpack(cell.load_acquire()).stamp;  // [W2] pairs with [R2]
      if (stamp == empty) {
        if (claim<kPushing>(write_, sequence)) {
          cell.store_release(StampedIndex{empty + 1, index}.pack());  // [W1] pairs with [R1]
          return Outcome::kOk;
        }
      } else if (const std::uint64_t now = write_.load_relaxed(); now == sequence) {
        return Outcome::kFull;  // the cell still holds the previous lap
      } else {
        sequence = now;  // another pusher took this position
      }
    }
  }

  // kOk or kEmpty. Called by one thread (Threads::kOne) or any number (kMany).
  Outcome try_pop(std::uint32_t& index) noexcept {
    std::uint64_t sequence = read_.load_relaxed();
    for (;;) {
      auto& cell = cells_[geometry_.cell_of(sequence)];
      const std::uint32_t empty = geometry_.empty_stamp(sequence);
      const StampedIndex held = StampedIndex::unpack(cell.load_acquire());  // [R1] pairs with [W1]
      if (held.stamp == empty + 1) {
        if (claim<kPopping>(read_, sequence)) {
          cell.store_release(StampedIndex{empty + 2, 0}.pack());  // [R2] pairs with [W2]
          index = held.index;
          return Outcome::kOk;
        }
      } else if (const std::uint64_t now = read_.load_relaxed(); now == sequence) {
        return Outcome::kEmpty;  // nothing was put here yet
      } else {
        sequence = now;  // another popper took this position
      }
    }
  }

  // A number that was true at some moment during the call, if no other thread was at work; else near it.
  [[nodiscard]] std::uint64_t approx_size() const noexcept {
    const std::uint64_t read = read_.load_relaxed();
    const std::uint64_t write = write_.load_relaxed();
    return write > read ? write - read : 0;
  }

 private:
  // Takes `sequence` for this thread; on failure `sequence` is the position to try next.
  template <Threads kSide>
  static bool claim(Sequence<Atom>& position, std::uint64_t& sequence) noexcept {
    if constexpr (kSide == Threads::kOne) {
      position.store_relaxed(sequence + 1);
      return true;
    } else {
      return position.try_claim_relaxed(sequence, sequence + 1);
    }
  }

  RingGeometry geometry_;                                 // constant
  std::unique_ptr<Atomic<std::uint64_t, Atom>[]> cells_;  // both sides
  Sequence<Atom> write_;                                  // advanced by pushing threads: next sequence to fill
  Sequence<Atom> read_;                                   // advanced by popping threads: next sequence to empty
};

}  // namespace pyecho
