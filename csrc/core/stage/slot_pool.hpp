// The slots of an echo stage and their cycle: free -> reserved -> filled -> planned -> free.
//
// A slot is fixed storage for one item. The pool handles slot numbers only; its user owns the storage. Producers
// reserve free slots, fill and commit them. The planning side is fed filled slots in the order of their reservations.
// The thread that finishes the last use of a slot releases it. Two rings carry the slot numbers: `free_`, between any
// threads, and `filled_`, ordered by ticket. Most operations have a form for several slots, which claims them at once.
//
//     producer, any thread        Reservation r;  if (pool.reserve(r, deadline) == kOk) { fill r.slot; pool.commit(r); }
//     planner, one at a time      pool.feed(plan), pool.await_items(n, deadline)
//     any thread                  pool.release(slots), pool.announce_released()
//
// end_pass() marks the end of a pass over the source in the order of tickets. close() ends the input: earlier
// reservations may still be committed, later ones return kClosed, and feed() ends the plan's input once everything
// reserved has been fed. stop() also ends every wait at once. reset() makes a closed or stopped pool usable again. In a
// child of fork(), reservations return kForked, and the other operations of producers, and stop(), do nothing, because
// a thread that stayed in the parent may hold a lock.
//
// variable     | written by             | read by       | order        | pairs with | why
// tickets_     | reserve, close, reset  | reserve,      | acq_rel RMW, | itself     | orders a reservation against close(); carries
//              |                        | close         | acquire      |            | the taker's cell store to the next publisher
// end_ticket_  | close [C1], reset      | feed [C2],    | release,     | C1 -> C2   | the number of tickets is final
//              |                        | await_items   | acquire      |            |
// stopped_     | stop, reset            | all waits     | release,     | -          | followed by an alert of every sleeper
//              |                        |               | acquire      |            |
// halted_      | set_halted, reset      | all waits     | release,     | -          | followed by an alert of every sleeper
//              |                        |               | acquire      |            |
// awaits_      | set_awaited            | await_items,  | release,     | -          | odd while the consumer waits for a batch; a
//              |                        | the driver    | acquire      |            | change is followed by an alert of the planner
// urgent_      | reserve (sleeping),    | await_items   | acq_rel RMW, | -          | an increase is followed by an alert of the
//              | end_pass, feed, reset  |               | acquire      |            | planner
// released_    | release,               | reserve       | EventCount   |            | producers without a slot sleep on it
//              | announce_released      |               |              |            |
// unannounced_ | release,               | the same      | acq_rel RMW  | itself     | released slots not yet counted by released_
//              | announce_released      |               |              |            |
// not_items_,  | abort, end_pass; feed  | committed()   | acq_rel RMW, | itself     | never more than committed_ together
// skipped_     |                        |               | acquire      |            |
// surplus_     | release, resets        | release       | relaxed RMW  | itself     | a count; the slots are not used again
// (slot data)  | producer before commit | builder       | by the rings |            | free ring: the last reader happens before the
//              |                        |               |              |            | next writer; filled ring: writer before reader
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/memory/stream_copy.hpp"
#include "core/plan/plan.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/fork_guard.hpp"
#include "core/sync/index_ring.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

// A producer's right to fill one slot. Must be committed or aborted exactly once. An open reservation holds up all
// later ones.
struct Reservation {
  std::uint32_t slot;
  std::uint64_t ticket;  // its place in the order of reservations
};

class SlotPool {
 public:
  static constexpr std::uint32_t kMaxSlots = (1U << 30) - 1;

  // `ahead`: slots beyond those that items occupy for long. Waiting producers are woken once a quarter of them has been
  // released, or by announce_released(). `spare`: of the slots, those that only reset_halted() fills. `streamed`: see
  // stream_slots(). Throws std::invalid_argument unless 1 <= slots <= kMaxSlots, std::bad_alloc.
  SlotPool(std::uint32_t slots, std::uint32_t ahead, std::uint32_t spare = 0, bool streamed = false);
  // Returns the bytes that a pool of `slots` slots allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t slots) noexcept {
    return 2 * IndexRing<>::size_bytes(slots);
  }

  // Slot numbers are below this.
  [[nodiscard]] std::uint32_t slots() const noexcept { return limits_.slots; }
  // Returns how many of them are in the cycle, but for those of items from before reset_halted().
  [[nodiscard]] std::uint32_t cycle() const noexcept { return limits_.slots - limits_.spare; }

  // -- Producers: any number of threads --

  // True if slots should be filled with streaming stores (see copy_bytes()). commit() and abort() fence for the thread
  // that calls them. A thread that copies for another one must call stream_fence() itself before it hands over.
  [[nodiscard]] bool stream_slots() const noexcept { return limits_.streamed; }
  // Reserves free slots, at most 64 and at most wanted.size() (>= 1), and sets `count` to their number. kOk, kFull,
  // kClosed, kForked. Never blocks.
  Outcome try_reserve(std::span<Reservation> wanted, std::uint32_t& count) noexcept;
  Outcome try_reserve(Reservation& reservation) noexcept {
    std::uint32_t count = 0;
    return try_reserve(std::span(&reservation, 1), count);
  }
  // Blocks while every slot is in use: kOk, kTimeout, kHalted (see await_resumed()), kClosed, kForked.
  Outcome reserve(Reservation& reservation, Deadline deadline);
  // Blocks while halted, until the deadline.
  void await_resumed(Deadline deadline);
  // Hands the filled slots to the planner.
  void commit(std::span<const Reservation> reservations);
  void commit(Reservation reservation) { commit(std::span(&reservation, 1)); }
  // Gives the slot back without an item.
  void abort(Reservation reservation) { publish_mark(reservation, kAborted); }
  // Same as abort(), and ends the pass: items reserved earlier belong to this pass, items reserved later to the next.
  void end_pass(Reservation reservation) { publish_mark(reservation, kPassEnd); }
  // Ends the input. Idempotent.
  void close();
  // Closes the input and ends every wait at once. Idempotent.
  void stop();

  [[nodiscard]] bool closed() const noexcept { return (tickets_.load_acquire() & kClosedBit) != 0; }
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load_acquire() != 0; }
  // Ends every wait, with kHalted or kEmpty, until it is undone. Nothing is lost: the same call made again waits on.
  void set_halted(bool halted);
  [[nodiscard]] bool halted() const noexcept { return halted_.load_acquire() != 0; }
  [[nodiscard]] bool forked() const noexcept { return fork_guard_.forked(); }
  // Returns the number of items committed so far, over all resets. Any thread.
  [[nodiscard]] std::uint64_t committed() const noexcept {
    const std::uint64_t skipped = skipped_.load_acquire();  // read first, so that it never exceeds accepted()
    return accepted() - skipped;
  }
  // Same, those that were skipped included.
  [[nodiscard]] std::uint64_t accepted() const noexcept {
    const std::uint64_t not_items = not_items_.load_acquire();  // read first, so that it never exceeds committed_
    return committed_.read() - not_items;
  }

  // -- The planning side: one thread at a time --

  // Feeds the plan everything that is committed, in ticket order, and the end of the input once the pool is closed and
  // drained, and not stopped. Returns false if there was nothing. Never blocks.
  bool feed(Plan& plan);
  // Call after feed() returned false. Blocks until `items` more items have been committed than fed (kOk). Returns early
  // if the input was closed or stopped, or a pass ended. While a producer sleeps for a slot, returns at every commit.
  // kTimeout if the deadline passed first. Returns early, too, once awaits() is odd and not `seen`; with `takes` once it
  // is not `seen`.
  Outcome await_items(std::uint64_t items, Deadline deadline, std::uint64_t seen = 0, bool takes = false);
  // Returns a count of what the consumer did: odd while it waits for a batch, a higher even number after each it took.
  [[nodiscard]] std::uint64_t awaits() const noexcept { return awaits_.load_acquire(); }

  // -- The consumer --

  // Tells the planner that the consumer waits for a batch (idempotent), or has taken one.
  void set_awaited(bool awaited);

  // -- Any thread --

  // Frees the slots.
  void release(std::span<const std::uint32_t> slots);
  // Wakes producers for released slots that were not announced yet. A thread that released slots must call this before
  // it waits or leaves the stage.
  void announce_released() { released_.advance(unannounced_.exchange_acq_rel(0)); }

  // -- No other thread inside --

  // Returns how many reservations are open.
  [[nodiscard]] std::uint64_t open_reservations() const noexcept {
    const std::uint64_t end = end_ticket_.load_acquire();
    return (end == kOpen ? tickets_.load_acquire() : end) - committed_.read();
  }
  // Frees every slot and opens the input again. Throws std::logic_error if a reservation is still open.
  void reset();
  // Same, but frees only these slots, and stays halted. The others hold items that a plan has been fed. As many slots
  // as are spare leave the cycle when they become free, so that later states are no larger than this one's may be.
  void reset_halted(std::span<const std::uint32_t> free);
  // Drops the first items that are committed from now on, in the order of their tickets, as if they had been aborted.
  void skip(std::uint64_t items) noexcept { skip_ = items; }

 private:
  void drain();
  std::size_t withhold(std::size_t count) noexcept;
  void open(bool halted);

  static constexpr std::uint64_t kClosedBit = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kOpen = kClosedBit;   // end_ticket_ while input is open
  static constexpr std::uint32_t kAborted = 1U << 31;  // with a slot number, in the filled ring
  static constexpr std::uint32_t kPassEnd = 1U << 30;  // likewise
  static constexpr std::uint32_t kMarks = kAborted | kPassEnd;
  static_assert(kMaxSlots < kPassEnd);

  struct Limits {
    std::uint32_t slots;
    std::uint32_t spare;
    std::uint32_t announce_group;
    bool streamed;
  };

  void publish_mark(Reservation reservation, std::uint32_t mark);
  void push_free(std::span<const std::uint32_t> slots) noexcept;

  const ForkGuard fork_guard_;
  const Limits limits_;
  IndexRing<> free_;               // releasing threads -> reserving threads
  IndexRing<> filled_;             // committing threads -> the planner, by ticket
  EventCount released_;            // advanced by releasing threads; reserving threads sleep on it
  EventCount committed_;           // advanced by producers, also for marks; the planner sleeps on it
  Sequence<> tickets_;             // advanced by reserving threads; kClosedBit set by close()
  Sequence<> not_items_;           // tickets that carried a mark, for statistics
  Sequence<> skipped_;             // items that were dropped, likewise
  Sequence<> unannounced_;         // advanced by releasing threads
  Sequence<> end_ticket_{kOpen};   // set by close()
  Atomic<std::uint32_t> stopped_;  // set by stop()
  Atomic<std::uint32_t> halted_;   // set by set_halted()
  Atomic<std::uint64_t> awaits_;   // set by set_awaited()
  Atomic<std::uint32_t> urgent_;   // reserving threads asleep, and ends of passes that are not fed yet
  Atomic<std::uint32_t> surplus_;  // slots to leave the cycle
  std::uint64_t known_ = 0;        // planner only: committed_ at the last look
  std::uint64_t skip_ = 0;         // planner only: items still to drop
};

}  // namespace pyecho
