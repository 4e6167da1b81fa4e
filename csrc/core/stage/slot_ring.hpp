// The slots of an echo stage and their cycle: free -> reserved -> filled -> planned -> free.
//
// A slot is fixed storage for one item. The ring handles slot numbers only; its user owns the storage. Producers
// reserve free slots, fill and commit them. A Feed hands the filled ones to the plan, in the order of their
// reservations. The thread that finishes the last use of a slot releases it. Two rings carry the slot numbers: `free_`,
// between any threads, and `filled_`, ordered by ticket. Most operations have a form for several slots, which claims
// them at once.
//
//     producer, any thread        Reservation r;  if (ring.reserve(r, deadline) == kOk) { fill r.slot; ring.commit(r); }
//     any thread                  ring.release(slots), ring.announce_released()
//
// end_pass() marks the end of a pass over the source in the order of tickets. close() ends the input: earlier
// reservations may still be committed, later ones return kClosed. stop() also ends every wait at once. reset() makes a
// closed or stopped ring usable again. In a child of fork(), reservations return kForked, and the other operations of
// producers, and stop(), do nothing, because a thread that stayed in the parent may hold a lock.
//
// Words that one side writes often and the other reads lie on cache lines of their own; those of Rare share one, which
// every call reads.
//
// variable     | written by             | read by       | order        | pairs with | why
// tickets_     | reserve, close, reset  | reserve,      | acq_rel RMW, | itself     | orders a reservation against close(); carries
//              |                        | close         | acquire      |            | the taker's cell store to the next publisher
// end_ticket   | close [C1], reset      | the feed [C2] | release,     | C1 -> C2   | the number of tickets is final
//              |                        |               | acquire      |            |
// stopped      | stop, reset            | all waits     | release,     | -          | followed by an alert of every sleeper
//              |                        |               | acquire      |            |
// halted       | set_halted, reset      | all waits     | release,     | -          | followed by an alert of every sleeper
//              |                        |               | acquire      |            |
// surplus      | release, reset         | release       | relaxed RMW  | itself     | a count; the slots are not used again
// urgent       | reserve (sleeping),    | the feed      | acq_rel RMW, | -          | an increase is followed by an alert of the
//              | end_pass, feed, reset  |               | acquire      |            | planner
// not_items    | abort, end_pass        | accepted()    | acq_rel RMW, | itself     | never more than committed_
//              |                        |               | acquire      |            |
// released_    | release,               | reserve       | EventCount   |            | producers without a slot sleep on it
//              | announce_released      |               |              |            |
// committed_   | commit, marks          | the feed      | EventCount   |            | the planner without items sleeps on it
// unannounced_ | release,               | the same      | acq_rel RMW  | itself     | released slots not yet counted by released_
//              | announce_released      |               |              |            |
// (slot data)  | producer before commit | gather        | by the rings |            | free ring: the last reader happens before the
//              |                        |               |              |            | next writer; filled ring: writer before reader
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/memory/stream_copy.hpp"
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

class SlotRing {
 public:
  static constexpr std::uint32_t kMaxSlots = (1U << 30) - 1;

  // Halted, with every slot free. `ahead`: slots beyond those that items occupy for long. Waiting producers are woken
  // once a quarter of them has been released, or by announce_released(). `spare`: of the slots, those that only reset()
  // to a state fills. `streamed`: see stream_slots(). Throws std::invalid_argument unless 1 <= slots <= kMaxSlots,
  // std::bad_alloc.
  SlotRing(std::uint32_t slots, std::uint32_t ahead, std::uint32_t spare = 0, bool streamed = false);
  // Returns the bytes that a ring of `slots` slots allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t slots) noexcept {
    return 2 * IndexRing<>::size_bytes(slots);
  }

  // Slot numbers are below this.
  [[nodiscard]] std::uint32_t slots() const noexcept { return limits_.slots; }
  // Returns how many of them are in the cycle, but for those of items from before reset().
  [[nodiscard]] std::uint32_t cycle() const noexcept { return limits_.slots - limits_.spare; }

  // -- Producers: any number of threads --

  // True if slots should be filled with streaming stores (see copy_bytes()). commit() and abort() fence for the thread
  // that calls them. A thread that copies for another one must call stream_fence() itself before it hands over.
  [[nodiscard]] bool stream_slots() const noexcept { return limits_.streamed; }
  // Reserves free slots, at most 64 and at most wanted.size() (>= 1), and sets `count` to their number. kOk, kFull,
  // kClosed, kForked. Never blocks.
  Outcome try_reserve(std::span<Reservation> wanted, std::uint32_t& count) noexcept;
  // Same, but blocks while every slot is in use: kTimeout, kHalted (see await_resumed()) instead of kFull.
  Outcome reserve(std::span<Reservation> wanted, std::uint32_t& count, Deadline deadline);
  Outcome reserve(Reservation& reservation, Deadline deadline) {
    std::uint32_t count = 0;
    return reserve(std::span(&reservation, 1), count, deadline);
  }
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
  [[nodiscard]] bool stopped() const noexcept { return rare_.stopped.load_acquire() != 0; }
  // Ends every wait, with kHalted or kEmpty, until it is undone. Nothing is lost: the same call made again waits on.
  void set_halted(bool halted);
  [[nodiscard]] bool halted() const noexcept { return rare_.halted.load_acquire() != 0; }
  // True if stopped or halted.
  [[nodiscard]] bool quiet() const noexcept { return stopped() || halted(); }
  [[nodiscard]] bool forked() const noexcept { return fork_guard_.forked(); }
  // Returns the number of items committed so far, over all resets. Any thread.
  [[nodiscard]] std::uint64_t accepted() const noexcept {
    const std::uint64_t not_items = calls_.not_items.load_acquire();  // read first, so that it never exceeds committed_
    return committed_.read() - not_items;
  }

  // -- Any thread --

  // Frees the slots.
  void release(std::span<const std::uint32_t> slots);
  // Wakes producers for released slots that were not announced yet. A thread that released slots must call this before it
  // waits or leaves the stage.
  void announce_released() { released_.advance(unannounced_.exchange_acq_rel(0)); }

  // -- No other thread inside --

  // Returns how many reservations are open.
  [[nodiscard]] std::uint64_t open_reservations() const noexcept {
    const std::uint64_t end = rare_.end_ticket.load_acquire();
    return (end == kOpen ? tickets_.load_acquire() : end) - committed_.read();
  }
  // Frees every slot and opens the input again, halted. Throws std::logic_error if a reservation is still open.
  void reset();
  // Same, but frees only these slots. The others hold items that a plan has been fed. As many slots as are spare leave
  // the cycle when they become free, so that later states are no larger than this one's may be.
  void reset(std::span<const std::uint32_t> free);

 private:
  friend class Feed;

  static constexpr std::uint64_t kClosedBit = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kOpen = kClosedBit;   // end_ticket while input is open
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
  struct alignas(kCacheLineBytes) Rare {
    Atomic<std::uint64_t> end_ticket{kOpen};  // set by close()
    Atomic<std::uint32_t> stopped;            // set by stop()
    Atomic<std::uint32_t> halted;             // set by set_halted()
    Atomic<std::uint32_t> surplus;            // slots to leave the cycle
  };
  struct alignas(kCacheLineBytes) Calls {
    Atomic<std::uint64_t> not_items;  // tickets that carried a mark, for statistics
    Atomic<std::uint32_t> urgent;     // reserving threads asleep, and ends of passes that are not fed yet
  };
  static_assert(sizeof(Rare) == kCacheLineBytes && sizeof(Calls) == kCacheLineBytes);

  void publish_mark(Reservation reservation, std::uint32_t mark);
  void push_free(std::span<const std::uint32_t> slots) noexcept;
  void drain();
  std::size_t withhold(std::size_t count) noexcept;
  void open();
  // A producer has gone to sleep or ended a pass; or that is over.
  std::uint32_t add_urgent(bool over) noexcept {
    return calls_.urgent.fetch_add_acq_rel(over ? static_cast<std::uint32_t>(-1) : 1);
  }

  const ForkGuard fork_guard_;  // on a line that nobody writes, as the next one
  const Limits limits_;
  Rare rare_;
  Calls calls_;
  IndexRing<> free_;        // releasing threads -> reserving threads
  IndexRing<> filled_;      // committing threads -> the planner, by ticket
  EventCount released_;     // advanced by releasing threads; reserving threads sleep on it
  EventCount committed_;    // advanced by producers, also for marks; the planner sleeps on it
  Sequence<> tickets_;      // advanced by reserving threads; kClosedBit set by close()
  Sequence<> unannounced_;  // advanced by releasing threads
};

// Each member that is written often begins and ends with a line.
static_assert(alignof(IndexRing<>) == kCacheLineBytes && alignof(EventCount) == kCacheLineBytes);
static_assert(sizeof(SlotRing) % kCacheLineBytes == 0);

}  // namespace pyecho
