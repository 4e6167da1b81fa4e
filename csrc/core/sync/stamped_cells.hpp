// The cells of a ring. Each is one 64-bit word: a number (low half) and a stamp (high half) that tells for which lap the
// cell is empty or full. So one atomic store publishes number and state together, and each cell tells whether it is full
// or empty:
//
//     sequence s, ring of 2^k cells:   cell = s mod 2^k,  lap = s / 2^k
//     stamp 2 * lap        empty, awaits the number with sequence s
//     stamp 2 * lap + 1    full, holds it
//     stamp 2 * lap + 2    emptied, which is "empty" for the sequence one lap later
//
// Stamps are lap numbers modulo 2^31. The rings (index_ring.hpp, reorder_ring.hpp) document which thread stores which
// stamp, and in which memory order.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/sync/atomic.hpp"

namespace pyecho {

// A cell of a ring: a stamp and a number in one word.
struct StampedIndex {
  std::uint32_t stamp;
  std::uint32_t index;

  [[nodiscard]] static StampedIndex unpack(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  [[nodiscard]] std::uint64_t pack() const noexcept { return (static_cast<std::uint64_t>(stamp) << 32) | index; }
};

// Maps sequences to cells and stamps. Pure arithmetic.
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
  // The stamp of the cell while it awaits `sequence`. Add 1 for a full cell, 2 for an emptied one.
  [[nodiscard]] std::uint32_t empty_stamp(std::uint64_t sequence) const noexcept {
    return static_cast<std::uint32_t>((sequence >> shift_) << 1);
  }

 private:
  unsigned shift_;
};

template <template <class> class Atom>
class StampedCells {
 public:
  using Word = Atomic<std::uint64_t, Atom>;

  // A cell, and its stamp while it awaits the requested sequence.
  struct Cell {
    Word* word;
    std::uint32_t empty;
  };

  // Makes as many cells as RingGeometry(min_cells) has. They await the sequences from `first` on.
  StampedCells(std::uint32_t min_cells, std::uint64_t first)
      : geometry_(min_cells), words_(std::make_unique<Word[]>(size())) {
    for (std::uint64_t s = first; s < first + size(); ++s) {
      const Cell cell = of(s);
      cell.word->store_relaxed(StampedIndex{cell.empty, 0}.pack());
    }
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return geometry_.cells(); }
  [[nodiscard]] Cell of(std::uint64_t sequence) const noexcept {
    return {&words_[geometry_.cell_of(sequence)], geometry_.empty_stamp(sequence)};
  }

  // Calls visit(i, cell) for i = 0, 1, ... with the cell of sequence `first` + i until it returns false, at most `most`
  // times and at most one lap. Returns the number of calls that returned true.
  template <class Visit>
  // NOLINTNEXTLINE(modernize-use-nodiscard): a caller that knows how many calls return true may ignore the count
  std::uint32_t visit(std::uint64_t first, std::size_t most, const Visit& visit) const noexcept {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(most, size()));
    std::uint32_t i = 0;
    while (i < count) {
      Cell cell = of(first + i);  // up to the end of the lap, cells lie side by side and await the same stamp
      const std::uint32_t end = i + std::min(count - i, size() - geometry_.cell_of(first + i));
      for (; i < end; ++i, ++cell.word) {
        if (!visit(i, cell)) {
          return i;
        }
      }
    }
    return i;
  }

 private:
  RingGeometry geometry_;          // constant
  std::unique_ptr<Word[]> words_;  // the pointer is constant
};

}  // namespace pyecho
