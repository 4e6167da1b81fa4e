// Example echoing: the stage that takes examples and hands out shuffled batches of their uses.
//
//     producers ──▶ SlotPool ──▶ Planner ──▶ BatchBuilders ──▶ ready ring ──▶ Lease
//
// The native threads are gather workers. A worker takes the turn (a mutex that no producer touches), plans the next
// batch, passes the turn on and copies the rows, so workers fill different batches at the same time while the plan stays
// one sequence. While the plan has to wait for an item, the worker copies what it has planned so far: slots come back as
// early as possible, and no wait in the plan can depend on a copy that waits for the plan. A consumer that finds no batch
// ready does the same as a worker, as far as it can without waiting, before it sleeps: to wake a thread on another
// processor can take longer than to make a batch.
//
// Output is a function of (items in the order of their reservations, configuration): threads and timing do not show.
//
//     EchoBuffer buffer(config);
//     Reservation r;                                   // any thread(s)
//     if (buffer.reserve(r, kNever) == Outcome::kOk) { fill buffer.slot_data(r.slot); buffer.commit(r); }
//     buffer.close();
//     Lease lease;                                     // one thread at a time
//     while (buffer.acquire(lease, kNever) == Outcome::kOk) { ... lease.data(), lease.rows() ...; lease.reset(); }
//
// variable      | written by           | read by       | order            | pairs with | why
// line_         | workers              | workers       | mutex            | -          | one of them at a time comes for the turn
// turn_         | makers: workers and  | makers        | mutex            | -          | planner_, open_, begun_, next_batch_,
//               | a waiting consumer   |               |                  |            | ended_
// in_flight_[i] | maker before         | acquire after | by ready_        | P1 -> T1   | the ring publishes the pointer
//               | ready_.publish       | try_take      |                  |            |
// ready_count_  | maker                | acquire       | EventCount       | E1 <-> E4  | wakes the consumer
// consumed_     | acquire              | makers        | EventCount       | E1 -> E5,  | wakes a worker; orders the consumer's last
//               |                      |               |                  | E1 <-> E4  | look at a ring cell before its next filling
// end_batch_    | maker [Z1]           | acquire [Z2]  | release, acquire | Z1 -> Z2   | the number of batches is final
// resident_, emitted_, batches_taken_, helped_: one writer at a time, relaxed, statistics
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_pool.hpp"
#include "core/memory/slot_reclaimer.hpp"
#include "core/memory/stream_copy.hpp"
#include "core/plan/planner.hpp"
#include "core/stage/batch_builder.hpp"
#include "core/stage/consumer_clock.hpp"
#include "core/sync/fork_guard.hpp"
#include "core/sync/reorder_ring.hpp"

namespace pyecho {

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

struct EchoBufferConfig {
  std::vector<std::size_t> leaf_bytes;  // size of each leaf of one example
  std::uint32_t batch_rows = 1;         // >= 1
  std::uint32_t capacity = 1;           // >= 1; >= batch_rows with unique_in_batch
  double factor = 2.0;                  // >= 1
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  bool unique_in_batch = false;
  bool drop_last = false;              // a batch of fewer than batch_rows rows is not handed out
  bool with_info = false;              // batches carry source indices and uses
  std::uint32_t prefetch = 2;          // >= 1: batches made ahead of the consumer; of small ones as many as
                                       // 4 MiB hold, up to 32, if that takes at most half of what
                                       // max_bytes leaves over
  std::uint32_t threads = 1;           // >= 1: gather workers
  std::uint32_t burst = 1;             // >= 1: items that arrive together; room for them is kept ahead of the pool,
                                       // and for as many small ones as 4 MiB hold, up to capacity, if
                                       // max_bytes leaves it over in the same way
  std::size_t max_bytes = kUnlimited;  // of slots and batches together; at least EchoBuffer::min_bytes()
  std::uint32_t held = 2;              // batches a consumer holds at a time; a loop has one while it asks for the next
  PagePolicy batch_pages = {.threads = std::thread::hardware_concurrency()};
};

struct EchoBufferStats {
  std::uint64_t fresh;           // items committed
  std::uint64_t emitted;         // uses handed to the consumer
  std::uint64_t batches;         // batches handed to the consumer
  std::uint64_t bytes_gathered;  // payload of the uses handed to the consumer
  std::uint64_t consumer_wait_ns;
  std::uint64_t downstream_ns;
  std::uint32_t resident;  // items in the planner's pool, of capacity
  std::uint64_t outstanding_leases;
  std::uint64_t batch_blocks;  // batches memory exists for
  std::uint64_t helped;        // batches that the consumer made while it waited
  std::uint64_t grown_blocks;  // blocks that were added because the consumer held all others
};

class EchoBuffer {
 public:
  // Allocates everything and starts the workers. Throws std::bad_alloc, std::length_error (no machine has the memory, or
  // max_bytes does not allow it), std::system_error.
  explicit EchoBuffer(const EchoBufferConfig& config);
  // Stops and joins the workers. Leases stay valid.
  ~EchoBuffer();
  EchoBuffer(const EchoBuffer&) = delete;
  EchoBuffer& operator=(const EchoBuffer&) = delete;

  // Bytes a buffer of this configuration needs before any growth. Throws std::length_error if no machine has them.
  [[nodiscard]] static std::size_t min_bytes(const EchoBufferConfig& config);
  [[nodiscard]] const SlotLayout& layout() const noexcept { return layout_; }

  // -- Producers: any number of threads (see SlotPool) --

  // kOk, kClosed, kTimeout, kForked.
  Outcome reserve(Reservation& reservation, Deadline deadline);
  // kOk, kFull, kClosed, kForked; never blocks.
  Outcome try_reserve(Reservation& reservation);
  // layout().slot_bytes() writable bytes, from the reservation to its commit or abort.
  [[nodiscard]] std::byte* slot_data(std::uint32_t slot) const noexcept {
    return slot_memory_.data() + slot * layout_.slot_bytes();
  }
  // Whether copies into slots had better be streamed, with copy_bytes(). commit() and abort() fence for the thread that calls
  // them; one that copies for it calls stream_fence() itself, before it hands over.
  [[nodiscard]] bool stream_slots() const noexcept { return stream_slots_; }
  void commit(Reservation reservation) {
    commit_quietly(reservation);
    announce_committed(1);
  }
  void commit_quietly(Reservation reservation) noexcept {
    fence_slots();
    pool_.commit_quietly(reservation);
  }
  void announce_committed(std::uint64_t items) {
    if (!fork_guard_.forked()) {
      pool_.announce_committed(items);
    }
  }
  void abort(Reservation reservation) {
    if (!fork_guard_.forked()) {
      fence_slots();  // who gets the slot next overwrites it
      pool_.abort(reservation);
    }
  }
  void close() {
    if (!fork_guard_.forked()) {
      pool_.close();
    }
  }
  [[nodiscard]] bool closed() const noexcept { return pool_.closed(); }

  // -- Consumer: one thread at a time --

  // Blocks until there is a batch, or the deadline has passed; a batch that this thread has begun to make before that is
  // finished first, and memory that it takes may be added.
  // kOk; kEnd after the last batch; kTimeout; kClosed after stop(); kExhausted when only the end of a lease can help
  // (call again after it); kForked.
  Outcome acquire(Lease& lease, Deadline deadline);
  // As acquire(), but kEmpty at once instead of waiting.
  Outcome try_acquire(Lease& lease);

  // -- Any thread --

  // Abandons everything: every wait ends with kClosed. Idempotent.
  void stop();
  [[nodiscard]] bool stopped() const noexcept { return pool_.stopped(); }
  [[nodiscard]] EchoBufferStats stats() const;
  // Why acquire() answered kExhausted; "" if max_bytes is the limit.
  [[nodiscard]] std::string refusal() const { return batches_->refusal(); }

 private:
  static EchoBufferConfig settled(EchoBufferConfig config);
  static std::uint32_t ahead_for(const EchoBufferConfig& config);
  static std::uint32_t slots_for(const EchoBufferConfig& config);
  static std::uint32_t depth_for(const EchoBufferConfig& config);
  static std::uint32_t blocks_for(const EchoBufferConfig& config);

  void fence_slots() const noexcept {
    if (stream_slots_) {
      stream_fence();
    }
  }
  void work(BatchBuilder* gatherer);
  bool help();
  Outcome plan(bool may_wait);
  Outcome draw_rows(bool may_wait);
  Outcome admit(bool may_wait);
  Batch* obtain(bool may_wait);
  void deliver(BatchBuilder& gatherer);
  void finish(std::uint64_t batches);

  const EchoBufferConfig config_;
  const SlotLayout layout_;
  const std::uint32_t depth_;  // batches claimed and not yet consumed, at most
  const ForkGuard fork_guard_;
  HostMemory slot_memory_;
  const bool stream_slots_;
  SlotPool pool_;
  SlotReclaimer spent_;
  std::shared_ptr<BatchPool> batches_;

  std::mutex line_;  // held by the worker that is next, until it has planned: the others need not be woken
  std::mutex turn_;  // held by the maker that plans; guards the next five
  Planner planner_;
  BatchBuilder* open_ = nullptr;  // the batch that is being planned; one maker may go on where another left off
  bool begun_ = false;            // the planner knows of it
  std::uint64_t next_batch_ = 0;  // its number
  bool ended_ = false;

  const std::uint64_t wake_items_;  // items worth waking a worker for

  ReorderRing<> ready_;                                              // makers -> consumer, by batch number
  std::vector<Batch*> in_flight_;                                    // by cell of ready_
  EventCount ready_count_;                                           // advanced by makers: batches published
  EventCount consumed_;                                              // advanced by the consumer: batches taken
  Sequence<> end_batch_{std::numeric_limits<std::uint64_t>::max()};  // set once by a maker
  Atomic<std::uint32_t> resident_;                                   // planner_.resident(), for stats()

  ConsumerClock clock_;  // the consumer's, with the next four
  Atomic<std::uint64_t> emitted_;
  Atomic<std::uint64_t> batches_taken_;
  Atomic<std::uint64_t> helped_;
  BatchBuilder* helper_ = nullptr;  // what the consumer makes

  std::vector<BatchBuilder> builders_;  // one for each worker, the consumer, and the open batch
  std::vector<std::thread> workers_;    // last: they use all of the above
};

}  // namespace pyecho
