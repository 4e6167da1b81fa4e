// Example echoing: the stage that takes examples and emits shuffled batches of their uses.
//
//     producers ──▶ SlotPool ──▶ Executor (BatchPlan) ──▶ Driver ──▶ Lease
//
// The output depends only on the items in the order of their reservations, the configuration and the epoch, not on
// threads or timing.
//
//     EchoBuffer buffer(config);
//     Reservation r;                                   // any thread(s)
//     if (buffer.reserve(r, kNever) == Outcome::kOk) { fill buffer.slot_data(r.slot); buffer.commit(r); }
//     buffer.close();
//     Lease lease;                                     // one thread at a time
//     while (buffer.acquire(lease, kNever) == Outcome::kOk) { ... lease.data(), lease.rows() ...; lease.reset(); }
//
// One buffer serves any number of epochs with the same memory and threads: begin() starts the next one, after the end of
// the last or in the middle of it. Several passes can also flow into each other in one epoch: with end_pass() between
// their items, acquire() returns kEnd after the batches that the uses of each pass make, while the pool keeps its items.
//
// emitted_, additional_, batches_taken_: written by the consumer, read by any thread, relaxed, statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_pool.hpp"
#include "core/memory/stream_copy.hpp"
#include "core/plan/batch_plan.hpp"
#include "core/stage/consumer_clock.hpp"
#include "core/stage/driver.hpp"
#include "core/stage/executor.hpp"

namespace pyecho {

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

struct EchoBufferConfig {
  std::vector<std::size_t> leaf_bytes;  // size of each leaf of one example
  std::uint32_t batch_rows = 1;         // >= 1
  std::uint32_t capacity = 1;           // >= 1; >= batch_rows with unique_in_batch
  double factor = 2.0;                  // >= 1
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;         // the first epoch
  std::uint64_t items = kUnknown;  // of a pass, if known: see EchoFactor
  std::uint64_t steps = 0;         // batches of an iteration; 0: as many as the uses of a pass make
  bool unique_in_batch = false;
  bool drop_last = false;              // batches of fewer than batch_rows rows are not counted; see acquire()
  bool with_info = false;              // batches carry source indices and uses
  std::uint32_t prefetch = 2;          // >= 1: batches made ahead of the consumer; raised for small batches to
                                       // as many as 4 MiB hold, at most 32, within half of the memory
                                       // that max_bytes leaves over
  std::uint32_t threads = 1;           // native threads that make batches, at most 256; 0: the consumer makes them
  std::uint32_t burst = 1;             // >= 1: items that arrive together; each gets a slot ahead of the pool; raised
                                       // for small items to as many as 4 MiB hold, at most capacity, with
                                       // the same bound on memory
  std::size_t max_bytes = kUnlimited;  // of everything that grows with these numbers; at least min_bytes()
  std::uint32_t min_uses = 0;          // the next three: see PlanConfig
  std::uint64_t max_age = 0;
  DecisionLog replay = {};
  std::uint32_t streams = 1;  // the next four: see PlanConfig
  std::uint64_t first_stream = 0;
  std::uint64_t stream_step = 1;
  bool even_factor = false;
  std::uint32_t held = 2;  // batches a consumer holds at a time; a loop holds one and requests the next
  // Makes the memory of a batch, for memory that the consumer takes away (see Lease::exchange()). Called in the constructor
  // only, since no batch is added then. Null: pageable memory.
  std::function<HostMemory(std::size_t size_bytes)> batch_memory = {};
};

// An item that the consumer has not had to its last use, and where its payload is.
struct Unspent {
  std::uint64_t number;  // in the order of the input, from 0 after begin()
  const Batch* batch;    // a batch that is not handed out, or null: the item is in a slot
  std::uint32_t place;   // row of the batch, or number of the slot
};

struct EchoBufferStats {
  std::uint64_t fresh;           // items committed
  std::uint64_t emitted;         // uses handed to the consumer
  std::uint64_t additional;      // of these, additional ones, see Extent
  std::uint64_t batches;         // batches handed to the consumer
  std::uint64_t bytes_gathered;  // payload of the uses handed to the consumer
  std::uint64_t consumer_wait_ns;
  std::uint64_t downstream_ns;
  std::uint32_t resident;  // items in the planner's pool, of capacity
  std::uint64_t outstanding_leases;
  std::uint64_t batch_blocks;  // batches that have memory
  std::uint64_t grown_blocks;  // blocks added because all others were in use
};

class EchoBuffer {
 public:
  // Allocates everything, starts the threads and begins config.epoch. Throws std::bad_alloc, std::length_error (too large
  // for any machine, or for max_bytes), std::invalid_argument, std::system_error.
  explicit EchoBuffer(const EchoBufferConfig& config);
  // Stops and joins the threads. Leases stay valid.
  ~EchoBuffer() { stop(); }
  EchoBuffer(const EchoBuffer&) = delete;
  EchoBuffer& operator=(const EchoBuffer&) = delete;

  // Returns the bytes that a buffer of this configuration needs before any growth. Throws std::length_error if they are
  // too many for any machine, std::invalid_argument.
  [[nodiscard]] static std::size_t min_bytes(const EchoBufferConfig& config);
  [[nodiscard]] const SlotLayout& layout() const noexcept { return layout_; }

  // -- Producers: any number of threads (see SlotPool) --

  // kOk, kClosed, kTimeout, kForked.
  Outcome reserve(Reservation& reservation, Deadline deadline) { return pool_.reserve(reservation, deadline); }
  // Blocks while halted, when reserve() returns kTimeout before its deadline.
  void await_resumed(Deadline deadline) { pool_.await_resumed(deadline); }
  // Reserves free slots and sets `count` to their number: kOk, kFull, kClosed, kForked. Never blocks.
  Outcome try_reserve(std::span<Reservation> wanted, std::uint32_t& count) { return pool_.try_reserve(wanted, count); }
  // Returns layout().slot_bytes() bytes, writable from the reservation to its commit or abort.
  [[nodiscard]] std::byte* slot_data(std::uint32_t slot) const noexcept {
    return slot_memory_.data() + slot * layout_.slot_bytes();
  }
  // True if slots should be filled with streaming stores (see copy_bytes()). commit() and abort() fence for the thread
  // that calls them. A thread that copies for another one must call stream_fence() itself before it hands over.
  [[nodiscard]] bool stream_slots() const noexcept { return stream_slots_; }
  void commit(std::span<const Reservation> reservations) {
    fence_slots();
    pool_.commit(reservations);
  }
  void commit(Reservation reservation) { commit(std::span(&reservation, 1)); }
  void abort(Reservation reservation) {
    fence_slots();  // because the next producer of the slot overwrites it
    pool_.abort(reservation);
  }
  // Marks the end of a pass over the source; another pass follows. Consumes the reservation.
  void end_pass(Reservation reservation) { pool_.end_pass(reservation); }
  void close() { pool_.close(); }
  // Same as close(), and keeps the message of the first failure until the consumer takes it, at the end, or begin().
  void fail(std::string message);
  [[nodiscard]] bool failed() const;
  std::optional<std::string> take_failure();
  [[nodiscard]] bool closed() const noexcept { return pool_.closed(); }

  // -- Consumer: one thread at a time --

  // Blocks until there is a batch or the deadline has passed. If this thread is making a batch at the deadline, it
  // finishes that batch first, and may add memory for it.
  // kOk; kEnd at the end of an iteration (and from then on, after close()); kTimeout; kClosed after stop(); kExhausted
  // if no batch can be made until a lease ends (call again after that); kForked.
  // With drop_last, short batches are returned too, with Lease::rows() below batch_rows; the caller must drop them.
  Outcome acquire(Lease& lease, Deadline deadline);
  // Same as acquire(), but kEmpty instead of waiting.
  Outcome try_acquire(Lease& lease);
  // True once the last iteration is over. From then on, acquire() returns kEnd.
  [[nodiscard]] bool at_end() const { return driver_.at_end(); }
  // After try_acquire() returned kEmpty: returns how many items must be committed before the next attempt is useful.
  // Returns 0 if there are workers, or if the missing part is not an item.
  [[nodiscard]] std::uint64_t needed() const { return driver_.needed(); }
  // Starts with iteration `epoch` and drops the rest of the last one. Waits for threads that copy a batch. No producer
  // may be inside or have open reservations, and stop() and close() must not be called meanwhile.
  Outcome begin(std::uint64_t epoch, const Extent& extent);

  // Drops the first items that are committed from now on, as if they had been aborted. As begin() otherwise, after it.
  void skip(std::uint64_t items) noexcept { pool_.skip(items); }
  // Returns the number of items committed so far, those that were skipped included. Any thread.
  [[nodiscard]] std::uint64_t accepted() const noexcept { return pool_.accepted(); }

  // -- Saving and resuming: the consumer's thread. Producers may be inside if no begin_at() is called. --

  // Ends all waits, parks the workers, and keeps them so until it is undone. Idempotent.
  void set_halted(bool halted);
  // While halted: sets `unspent` to the items that the consumer has not had to their last use, in no order.
  // `untaken`: batches that it has acquired and not had. Returns the plan, which has been fed everything that is committed.
  const BatchPlan& inspect(std::vector<Unspent>& unspent, std::vector<const Batch*> untaken);
  // Returns the bytes of a leaf of such an item.
  [[nodiscard]] const std::byte* data_of(const Unspent& item, const SlotLayout::Leaf& leaf) const noexcept {
    return item.batch == nullptr ? slot_data(item.place) + leaf.slot_offset
                                 : item.batch->memory.data() + leaf.batch_offset + item.place * leaf.size_bytes;
  }
  // Copies the first leaves of these items to `columns`, one for each leaf. Uses several threads for many bytes. Returns
  // the sum of the checksums of all rows (checksum.hpp), each with the item's number.
  [[nodiscard]] std::uint64_t copy_items(std::span<const Unspent> items, std::span<std::byte* const> columns) const;
  // Stops, drops everything, and returns a replay to `position`, which the caller runs.
  Replay begin_at(PlanPosition position);
  // Continues where it stands, as begin() otherwise, but halted: fill the slots of its items before set_halted(false).
  void resume(const Replay& replay) { driver_.resume(replay); }
  [[nodiscard]] std::uint32_t slots() const noexcept { return pool_.slots(); }
  // Returns how many batches may be planned and not handed out, at most.
  [[nodiscard]] std::uint32_t batches_ahead() const noexcept;

  // -- Any thread --

  // Stops the stage: every wait ends with kClosed. Idempotent.
  void stop();
  [[nodiscard]] bool stopped() const noexcept { return pool_.stopped(); }
  [[nodiscard]] bool forked() const noexcept { return pool_.forked(); }
  [[nodiscard]] EchoBufferStats stats() const;
  // The log of an adaptive factor, see BatchPlan.
  [[nodiscard]] DecisionLog log() const { return executor_.log(); }
  [[nodiscard]] bool diverged() const noexcept { return executor_.diverged(); }
  // See EchoQueue.
  void extend(std::span<const Knot> knots) {
    executor_.extend(knots);
    pool_.prompt();
  }
  [[nodiscard]] std::vector<Knot> knots() const { return executor_.knots(); }
  [[nodiscard]] std::uint64_t arrived() const noexcept { return pool_.arrived(); }
  // See BatchPlan.
  [[nodiscard]] OwnUses own_uses() const noexcept { return executor_.own_uses(); }
  // Returns the reason why acquire() returned kExhausted; "" if max_bytes is the limit.
  [[nodiscard]] std::string refusal() const { return batches_->refusal(); }

 private:
  void fence_slots() const noexcept {
    if (stream_slots_) {
      stream_fence();
    }
  }
  template <class Take>
  Outcome hand_out(Lease& lease, const Take& take);

  const EchoBufferConfig config_;
  const SlotLayout layout_;
  HostMemory slot_memory_;
  const bool stream_slots_;
  SlotPool pool_;
  const std::uint32_t blocks_;  // initial size of batches_
  std::shared_ptr<BatchPool> batches_;
  Executor executor_;

  ConsumerClock clock_;  // written by the consumer only, like the next two
  Atomic<std::uint64_t> emitted_;
  Atomic<std::uint64_t> additional_;
  Atomic<std::uint64_t> batches_taken_;
  mutable std::mutex failure_mutex_;
  std::optional<std::string> failure_;  // guarded by failure_mutex_

  Driver driver_;  // last: its threads use all of the above
};

}  // namespace pyecho
