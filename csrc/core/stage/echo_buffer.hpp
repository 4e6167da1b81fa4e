// Example echoing: the stage that takes examples and emits shuffled batches of their uses.
//
//     producers ──▶ SlotRing ──▶ Feed ──▶ Planner ──▶ BatchRing ──▶ Gather ──▶ BatchRing ──▶ Lease
//
// The output depends only on the items in the order of their reservations, the configuration and the epoch, not on
// threads or timing.
//
//     EchoBuffer buffer(config);
//     Reservation r;                                   // any thread(s)
//     SlotRing& input = buffer.input();
//     if (input.reserve(r, kNever) == Outcome::kOk) { fill buffer.slot_data(r.slot); input.commit(r); }
//     input.close();
//     Lease lease;                                     // one thread at a time
//     while (buffer.acquire(lease, kNever) == Outcome::kOk) { ... lease.data(), lease.rows() ...; lease.reset(); }
//
// One buffer serves any number of epochs with the same memory and threads: begin_epoch() starts the next one, after
// the end of the last or in the middle of it. Several passes can also flow into each other in one epoch: with end_pass()
// between their items, acquire() returns kEnd after the batches that the uses of each pass make, while the pool keeps
// its items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_memory.hpp"
#include "core/stage/batch_pool.hpp"
#include "core/stage/driver.hpp"
#include "core/stage/echo_config.hpp"
#include "core/stage/feed.hpp"
#include "core/stage/gather.hpp"
#include "core/stage/planner.hpp"
#include "core/stage/slot_ring.hpp"
#include "core/stage/stats.hpp"

namespace pyecho {

// An item that the consumer has not had to its last use, and where its payload is.
struct Unspent {
  std::uint64_t number;  // in the order of the input, from 0 in the segment of the position
  const Batch* batch;    // a batch that is not handed out, or null: the item is in a slot
  std::uint32_t place;   // row of the batch, or number of the slot
};

struct BufferSizes;

class EchoBuffer {
 public:
  // Allocates everything, starts the threads and begins config.epoch. Throws std::bad_alloc, std::length_error (too
  // large for any machine, or for max_bytes), std::invalid_argument, std::system_error.
  explicit EchoBuffer(const EchoConfig& config);
  // Stops and joins the threads. Leases stay valid.
  ~EchoBuffer() { stop(); }
  EchoBuffer(const EchoBuffer&) = delete;
  EchoBuffer& operator=(const EchoBuffer&) = delete;

  [[nodiscard]] const SlotLayout& layout() const noexcept { return layout_; }

  // -- Producers: any number of threads --

  // For all but SlotRing::abort() and stop(), which have their own functions here.
  [[nodiscard]] SlotRing& input() noexcept { return ring_; }
  // Returns layout().slot_bytes() bytes, writable from the reservation to its commit or abort.
  [[nodiscard]] std::byte* slot_data(std::uint32_t slot) const noexcept { return slot_memory_.data(slot); }
  // Gives a leaf of variable size of a reserved slot memory for an item of this shape, and returns it. Returns null if
  // the system has none.
  std::byte* allocate(std::uint32_t slot, const SlotLayout::Leaf& leaf, std::span<const std::uint64_t> shape) noexcept {
    return SlotMemory::allocate(slot_data(slot), leaf, shape);
  }
  [[nodiscard]] const VariableItem& variable_item(std::uint32_t slot, const SlotLayout::Leaf& leaf) const noexcept {
    return slot_memory_.item(slot, leaf);
  }
  // Gives the slot back without an item.
  void abort(Reservation reservation) {
    slot_memory_.drop(std::span(&reservation.slot, 1));
    ring_.abort(reservation);
  }
  // Returns all slots: shared memory with `shared_slots`.
  [[nodiscard]] const SlotMemory& slot_memory() const noexcept { return slot_memory_; }
  // Drops the first items that are committed from now on. No producer may be inside.
  void skip(std::uint64_t items) noexcept { feed_.skip(items); }
  // Closes the input, and keeps the message of the first failure until the consumer takes it, at the end, or begin().
  void fail(std::string message);
  [[nodiscard]] bool failed() const;
  std::optional<std::string> take_failure();

  // -- Consumer: one thread at a time --

  // Blocks until there is a batch or the deadline has passed. If this thread is making a batch at the deadline, it
  // finishes that batch first, and may add memory for it.
  // kOk; kEnd at the end of an iteration (and from then on, after close()); kTimeout; kClosed after stop(); kExhausted
  // if no batch can be made until a lease ends (call again after that); kForked.
  // With drop_last, short batches are returned too, with Lease::rows() below batch_size; the caller must drop them.
  Outcome acquire(Lease& lease, Deadline deadline);
  // Same as acquire(), but kEmpty instead of waiting.
  Outcome try_acquire(Lease& lease);
  // True once the last iteration is over.
  [[nodiscard]] bool at_end() const noexcept { return driver_.at_end(); }
  // After an attempt to take something returned kEmpty: returns how many items must be committed before the next one is
  // useful. Returns 0 if there are workers, or if the missing part is not an item.
  [[nodiscard]] std::uint64_t needed() const noexcept { return driver_.needed(); }

  // -- Beginning and resuming: the consumer's thread. No producer may be inside. --

  // The only way to begin. Stops, drops everything, and returns a replay to `position`. Waits for threads that copy a
  // batch. The caller runs the replay, but for the beginning of an epoch, and calls resume().
  Replay begin(PlanPosition position);
  // Continues where the replay stands, but halted: fill the slots of its items before set_halted(false). Frees all
  // others, released or not. Throws std::logic_error if a reservation is open.
  void resume(const Replay& replay);

  // -- Saving: the consumer's thread. Producers may be inside. --

  // Ends all waits, parks the workers, and keeps them so until it is undone. Idempotent.
  void set_halted(bool halted);
  // While halted: returns the input of the plan, which has been fed everything that is committed. `iterations`,
  // `batches`: taken by the last of the consumers.
  PlanPosition position(std::uint64_t iterations, std::uint64_t batches) {
    return planner_.fed_plan().position(iterations, batches * config_.plan.batch_size);
  }
  // Same, and sets `unspent` to the items that the consumer has not had to their last use, ascending. `untaken`:
  // batches that it has acquired and not had.
  PlanPosition inspect(std::vector<Unspent>& unspent, std::vector<const Batch*> untaken, std::uint64_t iterations,
                       std::uint64_t batches);
  // Returns the bytes of a leaf of such an item.
  [[nodiscard]] const std::byte* data_of(const Unspent& item, const SlotLayout::Leaf& leaf) const noexcept {
    if (item.batch == nullptr || gather_.keeps_items()) {
      return slot_data(item.batch == nullptr ? item.place : item.batch->uses[item.place].slot) + leaf.slot_offset;
    }
    return item.batch->memory.data() + leaf.batch_offset + item.place * leaf.row_bytes;
  }
  // Same, of a leaf of variable size.
  [[nodiscard]] const VariableItem& variable_of(const Unspent& item, const SlotLayout::Leaf& leaf) const noexcept {
    return *reinterpret_cast<const VariableItem*>(data_of(item, leaf));
  }
  // Copies the first leaves of these items to `columns`, one for each leaf; those of variable size one after the other.
  // Uses several threads for many bytes. Returns the sum of the checksums of all rows of a fixed size (checksum.hpp),
  // each with the item's number.
  [[nodiscard]] std::uint64_t copy_items(std::span<const Unspent> items, std::span<std::byte* const> columns) const;
  // Returns a new buffer to go on with so many items, or null if this one has slots for them. Items of batches made
  // ahead need slots again. With an adaptive factor, a pool of items that have left needs more. With uploads it has this
  // one's batches, so that memory on the device is there once: begin() here must come before it is used. Throws as the
  // constructor does.
  [[nodiscard]] std::shared_ptr<EchoBuffer> with_room_for(std::size_t items) const;
  // Returns how many batches may be planned and not handed out, at most.
  [[nodiscard]] std::uint32_t batches_ahead() const noexcept { return batches_ahead_; }

  // -- Any thread --

  // Stops the stage: every wait ends with kClosed. Idempotent.
  void stop();
  [[nodiscard]] EchoStats stats() const noexcept;
  // Facts of the plan.
  [[nodiscard]] const PlanView& view() const noexcept { return planner_.view(); }
  // Returns the reason why acquire() returned kExhausted; "" if max_bytes is the limit.
  [[nodiscard]] std::string refusal() const { return batches_->refusal(); }

 private:
  // `batches`: null for new ones.
  EchoBuffer(EchoConfig given, const BufferSizes& sizes, std::shared_ptr<BatchPool> batches = nullptr);
  template <class Take>
  Outcome hand_out(Lease& lease, const Take& take);

  const EchoConfig given_;
  const EchoConfig config_;  // settled
  const SlotLayout layout_;
  SlotMemory slot_memory_;
  const std::uint32_t blocks_;         // initial size of batches_
  const std::uint32_t batches_ahead_;  // planned and not handed out, at most
  std::shared_ptr<BatchPool> batches_;
  SlotRing ring_;
  Feed feed_;
  Plan plan_;
  Gather gather_;
  Planner planner_;
  ConsumerCounts counts_;
  bool owes_ = false;  // consumer only: gather_.taken() of the batch handed out last
  mutable std::mutex failure_mutex_;
  std::optional<std::string> failure_;  // guarded by failure_mutex_

  Driver driver_;  // last: its threads use all of the above
};

}  // namespace pyecho
