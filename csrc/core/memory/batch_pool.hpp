// The memory of batches: blocks that are filled and leased.
//
// A block goes round: free -> being filled -> ready -> leased -> free. Consumers may keep leases as long as they like, in
// any order and number; when every block is leased the pool adds one, up to its limit. Blocks are never freed before the
// pool, and the pool lives until its last lease is gone, so a view of a batch is valid however long it is held.
//
// variable     | written by        | read by       | order            | pairs with | why
// returned_    | give_back [B1]    | obtain [B2]   | release, acq_rel | B1 -> B2   | the consumer is done with the block
// outstanding_ | lease, give_back  | any           | relaxed          | -          | a count for messages and decisions that
//              |                   |               |                  |            | may be a moment old (the caller comes again)
// block_count_ | the obtaining     | any           | release, acquire | -          | how many blocks exist
// refused_     | the obtaining     | any           | release, acquire | -          | the limit was met once; stays set
// refusal_     | the obtaining     | any           | mutex            | -          | which limit it was, the last time
// returning_   | Lease, give_back  | obtain        | relaxed          | -          | a wish not to grow; a moment old does no
//              |                   |               |                  |            | harm, since returns_ wakes who waited for it
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/memory/host_memory.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/plan/use.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/fork_guard.hpp"

namespace pyecho {

// One block: memory for a batch, and the uses that its rows are copies of.
struct Batch {
  HostMemory memory;
  std::vector<Use> uses;     // of the rows; sized for a whole batch once
  std::uint64_t number = 0;  // in the order of planning
  std::uint32_t rows = 0;    // planned
  std::uint32_t copied = 0;  // rows that are copied
  Batch* next = nullptr;     // the stack of returned blocks; written by give_back

  // Where the next uses are to be planned.
  [[nodiscard]] std::span<Use> missing() noexcept { return std::span(uses).subspan(rows); }
};

class BatchPool {
 public:
  // `blocks` blocks now; more on demand while their bytes together stay within `max_bytes`. Throws as HostMemory does.
  BatchPool(SlotLayout layout, std::uint32_t blocks, std::size_t max_bytes, PagePolicy pages);

  [[nodiscard]] const SlotLayout& layout() const noexcept { return layout_; }

  // Bytes of one block with its uses, and of what the pool keeps about it.
  [[nodiscard]] static std::size_t block_bytes(const SlotLayout& layout) noexcept {
    return HostMemory::rounded_bytes(layout.batch_bytes()) + layout.rows() * sizeof(Use) + sizeof(Batch) +
           sizeof(owned_[0]);
  }

  // -- The filling side: one thread at a time --

  // A block to fill, or null if all are in use and one is about to be returned, or the limit (or the system) allows no
  // more.
  Batch* obtain();
  // Blocks until a lease has been returned since `seen` (kOk), `interrupted()` is true (kEmpty), or the deadline has
  // passed (kTimeout).
  template <class Interrupted>
  Outcome await_return(std::uint64_t seen, Deadline deadline, const Interrupted& interrupted) {
    return returns_.await(seen + 1, deadline, WaitStrategy::sleep(), interrupted);
  }
  [[nodiscard]] std::uint64_t returns() const noexcept { return returns_.read(); }
  void alert() { returns_.alert(); }

  // -- Any thread --

  void lease() noexcept { outstanding_.fetch_add_relaxed(1); }
  // A lease will end by itself soon: no reason to add a block meanwhile.
  void expect_return() noexcept { returning_.fetch_add_relaxed(1); }
  // Cancels expect_return(), and wakes the filling side, which may then add a block.
  void expect_no_return() noexcept {
    if (fork_guard_.forked()) {
      return;
    }
    returning_.fetch_add_relaxed(static_cast<std::uint64_t>(-1));
    returns_.advance();
  }
  // The end of a lease, that was expected or not, or of a block that was not leased. Never blocks, save to wake a filler.
  void give_back(Batch* batch, bool was_leased, bool was_expected = false);
  [[nodiscard]] std::uint64_t outstanding() const noexcept { return outstanding_.load_relaxed(); }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return block_count_.load_acquire(); }
  // Every block is leased and there will be no more: only the end of a lease can help.
  [[nodiscard]] bool exhausted() const noexcept { return refused_.load_acquire() != 0 && outstanding() == blocks(); }
  // Why there was no further block, the last time one was wanted; "" if `max_bytes` was the limit.
  [[nodiscard]] std::string refusal() const;

 private:
  Batch* add_block();
  Batch* refuse(const char* reason);

  ForkGuard fork_guard_;
  SlotLayout layout_;                          // constant
  std::size_t max_bytes_;                      // constant
  PagePolicy pages_;                           // constant once constructed
  std::vector<std::unique_ptr<Batch>> owned_;  // the filling side's
  Batch* free_ = nullptr;                      // the filling side's: blocks taken off returned_
  Atomic<Batch*> returned_;                    // pushed by any thread, taken whole by the filling side
  EventCount returns_;                         // advanced by give_back
  Sequence<> outstanding_;                     // leases alive
  Atomic<std::uint64_t> returning_;            // of these, expected to end
  Atomic<std::uint64_t> block_count_;          // owned_.size(), for other threads
  Atomic<std::uint32_t> refused_;              // set by the filling side
  mutable std::mutex refusal_mutex_;
  std::string refusal_;  // guarded by refusal_mutex_
};

// The right to read and write one batch; its end lets the block be filled again. Move-only, any thread.
class Lease {
 public:
  Lease() noexcept = default;
  Lease(std::shared_ptr<BatchPool> pool, Batch* batch) noexcept : pool_(std::move(pool)), batch_(batch) {
    pool_->lease();
  }
  ~Lease() { reset(); }
  Lease(Lease&& other) noexcept
      : pool_(std::move(other.pool_)),
        batch_(std::exchange(other.batch_, nullptr)),
        returning_(std::exchange(other.returning_, false)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(batch_, other.batch_);
    std::swap(returning_, other.returning_);
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  explicit operator bool() const noexcept { return batch_ != nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return batch_->memory.data(); }
  [[nodiscard]] std::uint32_t rows() const noexcept { return batch_->rows; }
  // What the rows are copies of.
  [[nodiscard]] std::span<const Use> uses() const noexcept { return std::span(batch_->uses).first(batch_->rows); }
  [[nodiscard]] const SlotLayout& layout() const noexcept { return pool_->layout(); }

  // The consumer is done with the batch; the present holder ends the lease as soon as it can, whatever the consumer does.
  void expect_end() noexcept {
    if (batch_ != nullptr && !std::exchange(returning_, true)) {
      pool_->expect_return();
    }
  }

  // Cancels expect_end().
  void expect_no_end() noexcept {
    if (std::exchange(returning_, false)) {
      pool_->expect_no_return();
    }
  }

  void reset() {
    if (batch_ != nullptr) {
      pool_->give_back(std::exchange(batch_, nullptr), true, std::exchange(returning_, false));
      pool_.reset();
    }
  }

 private:
  std::shared_ptr<BatchPool> pool_;
  Batch* batch_ = nullptr;
  bool returning_ = false;
};

}  // namespace pyecho
