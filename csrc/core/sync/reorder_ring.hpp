// A ring in which numbers are published in any order and taken in the order of their tickets.
//
// Several threads that fill slots (or batches) at their own pace each hold a ticket that was declared beforehand. The
// taker waits for the oldest ticket, so the order of the tickets, not the speed of the threads, decides what comes
// out first. Cells are those of IndexRing (index_ring.hpp): a stamp and a number in one word.
//
// Contract: at most capacity() tickets are open (issued and not yet taken) at a time. pyecho keeps it by having as
// many cells as there are things a ticket can stand for.
//
// variable | written by      | read by        | order            | pairs with | why
// read_    | the taker       | the taker      | relaxed          | -          | one taker at a time; a change of taker is
//          |                 |                |                  |            | ordered by whatever hands over the turn
// cell     | publisher [P1]  | taker [T1]     | release, acquire | P1 -> T1   | what was written to the slot is seen
// cell     | taker [T2]      | publisher      | relaxed          | -          | the contract orders it: a later ticket for
//          |                 |                |                  |            | this cell is issued after T2
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>

#include "core/sync/atomic.hpp"
#include "core/sync/index_ring.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

template <template <class> class Atom = std::atomic>
class ReorderRing {
 public:
  explicit ReorderRing(std::uint32_t min_capacity, std::uint64_t first_ticket = 0)
      : geometry_(min_capacity),
        cells_(std::make_unique<Atomic<std::uint64_t, Atom>[]>(geometry_.cells())),
        read_(first_ticket) {
    for (std::uint64_t t = first_ticket; t < first_ticket + geometry_.cells(); ++t) {
      cells_[geometry_.cell_of(t)].store_relaxed(StampedIndex{geometry_.empty_stamp(t), 0}.pack());
    }
  }

  [[nodiscard]] std::uint32_t capacity() const noexcept { return geometry_.cells(); }

  // Any thread that holds `ticket`, once. Never blocks.
  void publish(std::uint64_t ticket, std::uint32_t index) noexcept {
    auto& cell = cells_[geometry_.cell_of(ticket)];
    const std::uint32_t empty = geometry_.empty_stamp(ticket);
    assert(StampedIndex::unpack(cell.load_relaxed()).stamp == empty && "more tickets open than the ring has cells");
    cell.store_release(StampedIndex{empty + 1, index}.pack());  // [P1] pairs with [T1]
  }

  // The number published under the oldest open ticket: kOk, or kEmpty if it is not published yet. One thread at a time.
  Outcome try_take(std::uint32_t& index) noexcept {
    const std::uint64_t ticket = read_.load_relaxed();
    auto& cell = cells_[geometry_.cell_of(ticket)];
    const std::uint32_t empty = geometry_.empty_stamp(ticket);
    const StampedIndex held = StampedIndex::unpack(cell.load_acquire());  // [T1] pairs with [P1]
    if (held.stamp != empty + 1) {
      return Outcome::kEmpty;
    }
    cell.store_relaxed(StampedIndex{empty + 2, 0}.pack());  // [T2]
    read_.store_relaxed(ticket + 1);
    index = held.index;
    return Outcome::kOk;
  }

  // How many tickets have been taken; the oldest open ticket. The taker's own view is exact.
  [[nodiscard]] std::uint64_t taken() const noexcept { return read_.load_relaxed(); }

 private:
  RingGeometry geometry_;                                 // constant
  std::unique_ptr<Atomic<std::uint64_t, Atom>[]> cells_;  // publishers and taker
  Sequence<Atom> read_;                                   // advanced by the taker: the oldest open ticket
};

}  // namespace pyecho
