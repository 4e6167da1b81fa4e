// Copies the rows of planned batches, and gives back the slots whose last use was copied. No call waits.
//
// Slots come back in the order of the batches. Batches are planned one after the other and copied at the same time by
// several threads, so the last use of a slot may be copied before an earlier use that belongs to an earlier batch. The
// rule: a slot may be released once its last use has been copied and every earlier batch is whole (all its rows are
// copied). The oldest batch that is not whole, the front, releases its slots as they are copied. Slots of later batches
// are parked until the front reaches them. Slots that items leave before a batch, between two uses, count as slots of
// this batch.
//
// With operations, and leaves of variable size, a row is no copy of its item, and a state needs the items of all batches
// that the consumer has not had. So slots of a batch stay parked until taken() says that it was handed out, and the
// front is the oldest batch of which that has not been said.
//
// variable    | written by         | read by     | order            | pairs with | why
// front_      | copied [S1], with  | copied [S2] | release, acquire | S1 -> S2   | the copies of all earlier batches happen before
//             | mutex_; taken      |             |                  |            | the release of a slot of the front
// parked_[i]  | copied, taken      | the same    | mutex_           | -          | a batch parks its slots until it is the front
//
// A batch takes the mutex once, when it is whole, and more often only while it is ahead of the front. No thread waits
// while it holds the mutex, except for a producer that was suspended while it took a slot (SlotRing::release).
//
// copy(), copy_planned(), leave(): any number of threads, each with its own batch; a batch may change threads between two
// calls. taken(): the consumer. begin(): no other thread inside.
//
// If the system has no memory for operations or ragged rows, copy() throws std::bad_alloc, and goes on when it is called
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_memory.hpp"
#include "core/plan/plan.hpp"
#include "core/stage/batch_pool.hpp"
#include "core/stage/row_copier.hpp"
#include "core/stage/slot_ring.hpp"
#include "core/sync/atomic.hpp"

namespace pyecho {

class Gather {
 public:
  // `memory`: of the slots, in the format of batches.layout(). `plan`: made the batches. `depth`: maximum of batches that
  // are planned and not yet copied; if it keeps items, not yet taken. `stream`: copy past the caches (stream_copy.hpp).
  // The other arguments and the storage outlive this.
  Gather(SlotRing& slots, BatchPool& batches, SlotMemory& memory, const Plan& plan, std::uint32_t depth, bool stream,
         RowCopier::Programs programs = {});
  // Returns the bytes that it allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t slots, std::uint32_t depth) noexcept {
    return depth * sizeof(Parked) + slots * sizeof(std::uint32_t);
  }

  // Forgets everything. The next batch has this number.
  void begin(std::uint64_t batch);
  // Copies the rest of a batch that is planned, pads its rows, sends it to its device, if any, and frees each slot whose
  // last use was copied, once. Throws std::bad_alloc; then the batch is not whole, and another call goes on. Nothing is
  // left to do for a batch that is whole.
  void copy(Batch& batch, bool by_consumer = false);
  // Copies the rows of a batch that are planned and not yet copied. Returns false if there are none. Throws as copy().
  bool copy_planned(Batch& batch);
  // Items have left these slots before the next use of this batch.
  void leave(std::uint64_t batch, std::span<const std::uint32_t> slots) noexcept { copied(batch, slots, false); }

  // True if slots stay filled until taken().
  [[nodiscard]] bool keeps_items() const noexcept { return copier_.transforms(); }
  // If it keeps items: the consumer has got the next batch, and no state will hold it any more. The consumer's thread.
  void taken();
  // Returns how many slots are kept for a batch, which no other thread copies.
  [[nodiscard]] std::size_t kept(std::uint64_t batch) const noexcept {
    return keeps_items() ? parked_[batch % parked_.size()].count : 0;
  }

 private:
  // Slots of a batch: a list through parked_next_.
  struct Parked {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    bool whole = false;
  };

  void copied(std::uint64_t batch, std::span<const std::uint32_t> slots, bool whole) noexcept;
  bool release_parked(std::uint64_t batch) noexcept;
  void release(std::span<const std::uint32_t> slots) noexcept;

  SlotRing& slots_;
  BatchPool& batches_;
  const SlotLayout& layout_;
  SlotMemory& memory_;
  const Plan& plan_;
  const RowCopier copier_;

  Sequence<> front_;  // the oldest batch that is not whole
  std::mutex mutex_;
  std::vector<Parked> parked_;              // by batch number modulo its size
  std::vector<std::uint32_t> parked_next_;  // by slot
};

}  // namespace pyecho
