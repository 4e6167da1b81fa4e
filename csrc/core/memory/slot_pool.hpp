// The slots of an echo stage, on their way round: free -> reserved -> filled -> planned -> free.
//
// A slot is fixed storage for one item; the pool deals in slot numbers and leaves the storage to its user. Producers
// reserve free slots, fill and commit them; the planning side takes filled slots in the order of their reservations;
// the thread that finishes the last use of a slot releases it. Two rings of slot numbers carry them: `free`, between any
// threads, and `filled`, ordered by ticket. Every operation has a form for several slots, which claims them at once.
//
//     producer, any thread        Reservation r;  if (pool.reserve(r, deadline) == kOk) { fill r.slot; pool.commit(r); }
//     planner, one at a time      pool.take(slots), pool.await_items(n, deadline)
//     any thread                  pool.release(slots), pool.announce_released()
//
// end_pass() marks the end of a pass over the source in the order of tickets. close() ends the input: reservations that
// were made before may still be committed, later ones answer kClosed, and take() answers kEnd once everything reserved
// has been taken. stop() abandons: every wait ends at once. reset() makes a pool that was closed or stopped as new.
//
// variable     | written by             | read by       | order        | pairs with | why
// tickets_     | reserve, close         | reserve,      | acq_rel RMW, | itself     | orders a reservation against close(); carries
//              |                        | close         | acquire      |            | the taker's cell store to the next publisher
// end_ticket_  | close [C1]             | take [C2]     | release,     | C1 -> C2   | the number of tickets is final
//              |                        |               | acquire      |            |
// stopped_     | stop                   | all waits     | release,     | -          | followed by an alert of every sleeper
//              |                        |               | acquire      |            |
// waiting_     | reserve (sleeping)     | await_items   | acq_rel RMW, | -          | followed by an alert of the planner
//              |                        |               | acquire      |            |
// pass_ends_   | end_pass               | await_items   | acq_rel RMW, | -          | followed by an alert of the planner
//              |                        |               | acquire      |            |
// released_    | release,               | reserve       | EventCount   |            | producers without a slot sleep on it
//              | announce_released      |               |              |            |
// unannounced_ | release,               | the same      | acq_rel RMW  | itself     | released slots that released_ does not count yet
//              | announce_released      |               |              |            |
// not_items_   | abort, end_pass        | committed()   | acq_rel RMW, | itself     | never more than committed_ has counted
//              |                        |               | acquire      |            |
// (slot data)  | producer before commit | builder       | by the rings |            | free ring: the last reader happens before the
//              |                        |               |              |            | next writer; filled ring: writer before reader
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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
  static constexpr std::uint32_t kMaxSlots = (1U << 30) - 1;

  // Producers that wait for a slot are woken for `announce_group` (at least 1) released slots together, or when
  // announce_released() is called. Throws std::invalid_argument unless there are 1 to kMaxSlots slots, std::bad_alloc.
  SlotPool(std::uint32_t slots, std::uint32_t announce_group);
  // Bytes that a pool of so many slots allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t slots) noexcept;

  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }

  // -- Producers: any number of threads --

  // Reserves as many slots as are free, at most 64 and wanted.size(), which is at least 1; `count` of them. kOk, kFull,
  // kClosed. Never blocks.
  Outcome try_reserve(std::span<Reservation> wanted, std::uint32_t& count) noexcept;
  Outcome try_reserve(Reservation& reservation) noexcept {
    std::uint32_t count = 0;
    return try_reserve(std::span(&reservation, 1), count);
  }
  // Blocks while every slot is in use: kOk, kClosed, kTimeout.
  Outcome reserve(Reservation& reservation, Deadline deadline);
  // Hands the filled slots to the planner.
  void commit(std::span<const Reservation> reservations);
  void commit(Reservation reservation) { commit(std::span(&reservation, 1)); }
  // Gives the slot back unfilled; the item does not exist.
  void abort(Reservation reservation) { publish_mark(reservation, kAborted); }
  // As abort(), and marks the end of a pass: the items reserved before belong to it, those reserved later to the next.
  void end_pass(Reservation reservation);
  // No more input. Idempotent.
  void close();
  // Abandon everything. Idempotent.
  void stop();

  [[nodiscard]] bool closed() const noexcept { return (tickets_.load_acquire() & kClosedBit) != 0; }
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load_acquire() != 0; }
  // Items committed so far, over all resets. Any thread.
  [[nodiscard]] std::uint64_t committed() const noexcept {
    const std::uint64_t not_items = not_items_.load_acquire();  // first: what it counts, committed_ has counted
    return committed_.read() - not_items;
  }

  // -- The planning side: one thread at a time --

  enum class Taken : unsigned char { kItems, kPassEnd, kNothing, kEnd };
  // The next filled slots in ticket order, a span that is valid until the next call. kPassEnd: a pass ends here.
  // kNothing: none is committed. kEnd: closed and drained. Never blocks.
  Taken take(std::span<const std::uint32_t>& slots);
  // To be called after take() answered kNothing. Blocks until `items` more than have been taken were committed, or there
  // may be news sooner: input was closed or stopped, or a pass ended, or a producer sleeps for want of a slot, in which
  // case every single commit counts. kTimeout if the deadline passed first.
  Outcome await_items(std::uint64_t items, Deadline deadline);

  // -- Any thread --

  // The slots are free again.
  void release(std::span<const std::uint32_t> slots);
  // Wakes producers for slots that were released and not announced. To be called before a thread that released slots
  // waits for anything or leaves the stage.
  void announce_released() { released_.advance(unannounced_.exchange_acq_rel(0)); }

  // -- Nobody inside --

  // Frees every slot and opens the input again. Every reservation must have been committed or aborted.
  void reset();

 private:
  static constexpr std::uint64_t kClosedBit = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kOpen = kClosedBit;   // end_ticket_ while input is open
  static constexpr std::uint32_t kAborted = 1U << 31;  // with a slot number, in the filled ring
  static constexpr std::uint32_t kPassEnd = 1U << 30;  // likewise
  static constexpr std::uint32_t kMarks = kAborted | kPassEnd;
  static_assert(kMaxSlots < kPassEnd);

  void publish_mark(Reservation reservation, std::uint32_t mark);
  void push_free(std::span<const std::uint32_t> slots) noexcept;
  bool look() noexcept;

  std::uint32_t slots_;                      // constant
  std::uint32_t announce_group_;             // constant
  IndexRing<> free_;                         // releasing threads -> reserving threads
  ReorderRing<> filled_;                     // committing threads -> the planner, by ticket
  EventCount released_;                      // advanced by releasing threads; reserving threads sleep on it
  EventCount committed_;                     // advanced by producers, for marks too; the planner sleeps on it
  Sequence<> tickets_;                       // advanced by reserving threads; kClosedBit set by close()
  Sequence<> not_items_;                     // tickets that carried a mark, for statistics
  Sequence<> pass_ends_;                     // advanced by end_pass()
  Sequence<> unannounced_;                   // advanced by releasing threads
  Sequence<> end_ticket_{kOpen};             // set by close()
  Atomic<std::uint32_t> stopped_;            // set by stop()
  Atomic<std::uint32_t> waiting_;            // reserving threads asleep
  std::uint64_t known_ = 0;                  // the planner's own, with the next four: commits counted at its last look
  std::uint64_t pass_ends_taken_ = 0;        // of pass_ends_
  std::array<std::uint32_t, 256> looked_{};  // taken off filled_
  std::uint32_t next_ = 0;                   // in looked_
  std::uint32_t end_ = 0;                    // of looked_
};

}  // namespace pyecho
