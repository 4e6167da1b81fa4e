// The slots of an echo stage, on their way round: free -> reserved -> filled -> planned -> free.
//
// A slot is fixed storage for one item; the pool deals in slot numbers and leaves the storage to its user. Producers
// reserve a free slot, fill it and commit it; the planning side takes filled slots in the order in which they were
// reserved; whoever finishes the last use of a slot releases it. Two rings of slot numbers carry them: `free`, between
// any threads, and `filled`, ordered by ticket.
//
//     producer, any thread        Reservation r;  if (pool.reserve(r, deadline) == kOk) { fill r.slot; pool.commit(r); }
//     planner, one at a time      pool.try_take(slot), pool.await_items(n, deadline)
//     any thread                  pool.release(slot), pool.announce_released(n)
//
// close() ends the input: reservations that were made before may still be committed, later ones answer kClosed, and
// try_take() answers kEnd once everything reserved has been taken. stop() abandons: every wait ends at once.
//
// variable     | written by             | read by       | order        | pairs with | why
// tickets_     | reserve, close         | reserve,      | acq_rel RMW, | itself     | orders a reservation against close(); carries
//              |                        | close         | acquire      |            | the taker's cell store to the next publisher
// end_ticket_  | close [C1]             | try_take [C2] | release,     | C1 -> C2   | the number of tickets is final
//              |                        |               | acquire      |            |
// stopped_     | stop                   | all waits     | release,     | -          | followed by an alert of every sleeper
//              |                        |               | acquire      |            |
// waiting_     | reserve (sleeping)     | await_items   | acq_rel RMW, | -          | followed by an alert of the planner
//              |                        |               | acquire      |            |
// aborted_     | abort                  | committed()   | acq_rel RMW, | itself     | never more than committed_ has counted
//              |                        |               | acquire      |            |
// (slot data)  | producer before commit | gather        | by the rings |            | free ring: the last reader happens before the
//              |                        |               |              |            | next writer; filled ring: writer before reader
#pragma once

#include <cstdint>

#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/index_ring.hpp"
#include "core/sync/outcome.hpp"
#include "core/sync/reorder_ring.hpp"

namespace pyecho {

// A producer's right to fill one slot. Must be committed or aborted, once; a reservation that is kept holds up all
// that were made after it.
struct Reservation {
  std::uint32_t slot;
  std::uint64_t ticket;  // its place in the order of reservations
};

class SlotPool {
 public:
  // A producer that finds no slot sleeps until `wake_group` slots (>= 1) have been released, so that it is not woken for
  // each. The taker must be able to free that many from a full pool without further input.
  SlotPool(std::uint32_t slots, std::uint32_t wake_group);

  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }

  // -- Producers: any number of threads --

  // kOk, kFull, kClosed. Never blocks.
  Outcome try_reserve(Reservation& reservation) noexcept;
  // Blocks while every slot is in use: kOk, kClosed, kTimeout.
  Outcome reserve(Reservation& reservation, Deadline deadline);
  // Hands the filled slot to the planner.
  void commit(Reservation reservation) {
    commit_quietly(reservation);
    announce_committed(1);
  }
  // As commit(), but leaves counting and waking to announce_committed(), which the thread calls once for many and before
  // it waits for anything: a read-modify-write right after a copy waits until all of the copy has left the store buffer.
  void commit_quietly(Reservation reservation) noexcept { filled_.publish(reservation.ticket, reservation.slot); }
  void announce_committed(std::uint64_t items) { committed_.advance(items); }
  // Gives the slot back unfilled; the item does not exist.
  void abort(Reservation reservation);
  // No more input. Idempotent.
  void close();
  // Abandon everything. Idempotent.
  void stop();

  [[nodiscard]] bool closed() const noexcept { return (tickets_.load_acquire() & kClosedBit) != 0; }
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load_acquire() != 0; }
  // Slots committed so far. Any thread.
  [[nodiscard]] std::uint64_t committed() const noexcept {
    const std::uint64_t aborted = aborted_.load_acquire();  // first: what it counts, committed_ has counted
    return committed_.read() - aborted;
  }

  // -- The planning side: one thread at a time --

  // The next filled slot in ticket order: kOk, kEmpty, or kEnd when closed and drained. Never blocks.
  Outcome try_take(std::uint32_t& slot);
  // To be called after try_take() answered kEmpty. Blocks until `items` more than have been taken were committed, or
  // there may be news sooner: input was closed or stopped, or a producer sleeps for want of a slot, in which case every
  // single commit counts. kTimeout if the deadline passed first.
  Outcome await_items(std::uint64_t items, Deadline deadline);

  // -- Any thread --

  // The slot is free again. Sleeping producers learn of it through announce_released(), which the releasing thread calls
  // once for many slots, and at the latest before it waits for anything.
  void release(std::uint32_t slot) noexcept;
  void announce_released(std::uint64_t slots) { released_.advance(slots); }

 private:
  static constexpr std::uint64_t kClosedBit = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kOpen = kClosedBit;   // end_ticket_ while input is open
  static constexpr std::uint32_t kAborted = 1U << 31;  // marks a slot number in the filled ring

  std::uint32_t slots_;                             // constant
  std::uint32_t wake_group_;                        // constant
  IndexRing<Threads::kMany, Threads::kMany> free_;  // releasing threads -> reserving threads
  ReorderRing<> filled_;                            // committing threads -> the planner, by ticket
  EventCount released_;                             // advanced by releasing threads; reserving threads sleep on it
  EventCount committed_;           // advanced by committing and aborting threads; the planner sleeps on it
  Sequence<> tickets_;             // advanced by reserving threads; kClosedBit set by close()
  Sequence<> aborted_;             // advanced by aborting threads, for statistics
  Sequence<> end_ticket_{kOpen};   // set once by close()
  Atomic<std::uint32_t> stopped_;  // set once by stop()
  Atomic<std::uint32_t> waiting_;  // reserving threads asleep
  std::uint64_t known_ = 0;        // the planner's own: commits counted at its last kEmpty
};

}  // namespace pyecho
