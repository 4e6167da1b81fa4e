// A bounded first-in first-out ring of slot numbers, lock-free, for any number of threads on either side.
//
// Each cell is one 64-bit word: a number (low half) and a stamp (high half) that tells for which lap the cell is empty
// or full. So one atomic store publishes number and state together, and neither side reads the other's position:
//
//     sequence s, ring of 2^k cells:   cell = s mod 2^k,  lap = s / 2^k
//     stamp 2 * lap        empty, awaits the number with sequence s
//     stamp 2 * lap + 1    full, holds it
//     stamp 2 * lap + 2    emptied, which is "empty" for the sequence one lap later
//
// A push scans the cells from the write position until one is not empty, claims the sequences before that one with a
// single compare-and-swap of the 64-bit position, then fills their cells. A pop does the same with full cells from the
// read position, then empties them. Only a thread that has claimed a sequence changes its cell. A claim succeeds only
// if the position has not moved since it was loaded, so the cells have not changed since they were read. Stamps are lap
// numbers modulo 2^31. That is enough, because the claim compares the whole sequence, so a thread that slept through
// 2^31 laps fails its claim.
//
// With publish() in place of try_push(), the sequences are tickets that were issued elsewhere. Numbers are then
// published in any order and popped in the order of their tickets, so the tickets decide the order, not the speed of
// the threads. The contract: at most capacity() tickets are open (issued and not yet popped), and the pop of the ticket
// one lap before happens before the publish. A ring is used with one of the two, never with both.
//
// variable | written by             | read by       | order            | pairs with | why
// write_   | pushing threads        | the same      | relaxed          | -          | only claims positions
// read_    | popping threads        | the same      | relaxed          | -          | only claims positions
// cell     | push, publish [W1]     | pop [R1]      | release, acquire | W1 -> R1   | the pusher's writes to the slot
//          |                        |               |                  |            | happen before the popper's use
// cell     | pop [R2]               | push [W2]     | release, acquire | R2 -> W2   | the popper is done with the cell
//          |                        |               |                  |            | before it is filled again
//
// No call blocks, allocates or throws. They are lock-free in this sense: a thread that stalls between its claim and its
// cell stores delays only threads that need the same cells. So if several threads pop, a push during one of their calls
// may report full although a later pop is complete. If several threads push, a pop may likewise find too few numbers.
// With one thread on the other side the answers are exact.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/sync/atomic.hpp"

namespace pyecho {

template <template <class> class Atom = std::atomic>
class IndexRing {
 public:
  // Makes at least `min_capacity` cells (1 at least, 2^31 at most), rounded up to a power of two. `first_sequence`
  // exists so that tests can start near the end of the number range.
  explicit IndexRing(std::uint32_t min_capacity, std::uint64_t first_sequence = 0)
      : shift_(static_cast<unsigned>(std::countr_zero(std::bit_ceil(min_capacity)))),
        words_(std::make_unique<Word[]>(capacity())),
        write_(first_sequence),
        read_(first_sequence) {
    for (std::uint64_t sequence = first_sequence; sequence < first_sequence + capacity(); ++sequence) {
      const Cell cell = cell_of(sequence);
      cell.word.store_relaxed(pack(cell.empty, 0));
    }
  }
  // Returns the bytes that such a ring allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t min_capacity) noexcept {
    return std::size_t{std::bit_ceil(min_capacity)} * sizeof(Word);
  }

  [[nodiscard]] std::uint32_t capacity() const noexcept { return 1U << shift_; }

  // Pushes as many of `indices` as fit, in order. Returns the number pushed, 0 if the ring is full.
  std::uint32_t try_push(std::span<const std::uint32_t> indices) noexcept {
    const auto [first, count] =
        claim(write_, indices.size(), [](std::uint32_t, const Cell& cell) { return cell.is_empty(); });
    for (std::uint32_t i = 0; i < count; ++i) {
      cell_of(first + i).fill(indices[i]);
    }
    return count;
  }

  // Publishes `index` under `ticket`. Called once, by the thread that holds the ticket. Wait-free.
  void publish(std::uint64_t ticket, std::uint32_t index) noexcept {
    const Cell cell = cell_of(ticket);
    assert(cell.is_empty() && "more tickets open than cells");
    cell.fill(index);
  }

  // Pops up to indices.size() numbers into `indices`. Returns the number popped, 0 if the ring is empty or the oldest
  // open ticket is not published yet. The rest of `indices` is unspecified.
  std::uint32_t try_pop(std::span<std::uint32_t> indices) noexcept {
    const auto [first, count] =
        claim(read_, indices.size(), [&](std::uint32_t i, const Cell& cell) { return cell.holds(indices[i]); });
    for (std::uint32_t i = 0; i < count; ++i) {
      cell_of(first + i).clear();
    }
    return count;
  }

  // Returns the sequence of the next number to pop. Exact if no other thread pops.
  [[nodiscard]] std::uint64_t read_position() const noexcept { return read_.load_relaxed(); }

 private:
  using Word = Atomic<std::uint64_t, Atom>;

  static std::uint64_t pack(std::uint32_t stamp, std::uint32_t index) noexcept {
    return (std::uint64_t{stamp} << 32) | index;
  }

  // A cell, and its stamp while it awaits the requested sequence.
  struct Cell {
    Word& word;
    std::uint32_t empty;

    [[nodiscard]] bool is_empty() const noexcept { return word.load_acquire() >> 32 == empty; }  // [W2] pairs with [R2]
    void fill(std::uint32_t index) const noexcept {
      word.store_release(pack(empty + 1, index));  // [W1] pairs with [R1]
    }
    [[nodiscard]] bool holds(std::uint32_t& index) const noexcept {
      const std::uint64_t held = word.load_acquire();  // [R1] pairs with [W1]
      index = static_cast<std::uint32_t>(held);
      return held >> 32 == empty + 1;
    }
    void clear() const noexcept { word.store_release(pack(empty + 2, 0)); }  // [R2] pairs with [W2]
  };

  [[nodiscard]] Cell cell_of(std::uint64_t sequence) const noexcept {
    return {words_[sequence & (capacity() - 1)], static_cast<std::uint32_t>((sequence >> shift_) << 1)};
  }

  // Claims the next sequences of `position` for the calling thread, up to `most` and up to the first cell for which
  // `ready(i, cell)` is false. No cell is ready for two laps, so at most one lap. Returns the first sequence and the
  // number.
  template <class Ready>
  std::pair<std::uint64_t, std::uint32_t> claim(Sequence<Atom>& position, std::size_t most,
                                                const Ready& ready) const noexcept {
    std::uint64_t first = position.load_relaxed();
    for (;;) {
      std::uint32_t count = 0;
      while (count < most && ready(count, cell_of(first + count))) {
        ++count;
      }
      if (count > 0) {
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

  const unsigned shift_;
  const std::unique_ptr<Word[]> words_;  // both sides
  Sequence<Atom> write_;                 // advanced by pushing threads: next sequence to fill
  Sequence<Atom> read_;                  // advanced by popping threads: next sequence to empty
};

}  // namespace pyecho
