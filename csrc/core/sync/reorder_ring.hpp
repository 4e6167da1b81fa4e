// A ring in which numbers are published in any order and taken in the order of their tickets.
//
// Several threads fill slots (or batches) at their own pace, and each holds a ticket that was issued beforehand. The
// taker waits for the oldest ticket, so the order of the tickets decides the order of the output, not the speed of the
// threads. Cells (stamped_cells.hpp) hold a stamp and a number in one word.
//
// Contract: at most capacity() tickets are open (issued and not yet taken) at a time. pyecho ensures it by having at
// least one cell for each slot (or batch) that a ticket can stand for.
//
// variable | written by      | read by        | order            | pairs with | why
// read_    | the taker       | the taker      | relaxed          | -          | one taker at a time; the hand-over of the
//          |                 |                |                  |            | turn orders a change of taker
// cell     | publisher [P1]  | taker [T1]     | release, acquire | P1 -> T1   | makes writes to the slot visible
// cell     | taker [T2]      | publisher      | relaxed          | -          | the contract orders it: a later ticket for
//          |                 |                |                  |            | this cell is issued after T2
//
// publish, take and try_take are wait-free.
#pragma once

#include <cassert>
#include <cstdint>
#include <span>

#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"
#include "core/sync/stamped_cells.hpp"

namespace pyecho {

template <template <class> class Atom = std::atomic>
class ReorderRing {
 public:
  explicit ReorderRing(std::uint32_t min_capacity, std::uint64_t first_ticket = 0)
      : cells_(min_capacity, first_ticket), read_(first_ticket) {}

  [[nodiscard]] std::uint32_t capacity() const noexcept { return cells_.size(); }

  // Publishes `index` under `ticket`. Called once, by the thread that holds the ticket.
  void publish(std::uint64_t ticket, std::uint32_t index) noexcept { fill(cells_.of(ticket), index); }
  // Publishes `indices` (at most capacity()) under consecutive tickets from `first_ticket` on.
  void publish(std::uint64_t first_ticket, std::span<const std::uint32_t> indices) noexcept {
    assert(indices.size() <= capacity());
    cells_.visit(first_ticket, indices.size(), [&](std::uint32_t i, Cell cell) { return fill(cell, indices[i]); });
  }

  // Takes the number of the oldest open ticket. kOk, or kEmpty if it is not published yet. One thread at a time.
  Outcome try_take(std::uint32_t& index) noexcept {
    return take(std::span<std::uint32_t>(&index, 1)) == 1 ? Outcome::kOk : Outcome::kEmpty;
  }
  // Takes the numbers of the oldest open tickets, up to the first ticket that is not published yet. Returns the count.
  // One thread at a time.
  std::uint32_t take(std::span<std::uint32_t> indices) noexcept {
    const std::uint64_t first = read_.load_relaxed();
    const std::uint32_t count =
        cells_.visit(first, indices.size(), [&](std::uint32_t i, Cell cell) { return take_from(cell, indices[i]); });
    if (count > 0) {
      read_.store_relaxed(first + count);
    }
    return count;
  }

  // Returns the number of tickets taken, which is also the oldest open ticket. Exact in the taker's thread.
  [[nodiscard]] std::uint64_t taken() const noexcept { return read_.load_relaxed(); }

 private:
  using Cell = typename StampedCells<Atom>::Cell;

  static bool fill(Cell cell, std::uint32_t index) noexcept {
    assert(StampedIndex::unpack(cell.word->load_relaxed()).stamp == cell.empty && "more tickets open than cells");
    cell.word->store_release(StampedIndex{cell.empty + 1, index}.pack());  // [P1] pairs with [T1]
    return true;
  }
  static bool take_from(Cell cell, std::uint32_t& index) noexcept {
    const StampedIndex held = StampedIndex::unpack(cell.word->load_acquire());  // [T1] pairs with [P1]
    if (held.stamp != cell.empty + 1) {
      return false;
    }
    cell.word->store_relaxed(StampedIndex{cell.empty + 2, 0}.pack());  // [T2]
    index = held.index;
    return true;
  }

  StampedCells<Atom> cells_;  // publishers and taker
  Sequence<Atom> read_;       // advanced by the taker: the oldest open ticket
};

}  // namespace pyecho
