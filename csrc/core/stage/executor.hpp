// Makes the batches of example echoing, one step at a time. Never waits; the driver waits (driver.hpp).
//
// A step takes the slots that producers have filled, feeds them to the plan, and plans rows of the open batch, until
// the batch is complete or an item or a block is missing. While an item is missing, the rows planned so far are copied.
// That frees slots as early as possible and prevents a deadlock of a producer that waits for a slot and a batch that
// waits for an item.
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
// while it holds the mutex, except for a producer that was suspended while it took a slot (SlotPool::release).
//
// copy(), copy_planned(): any number of threads, each with its own batch; a batch may change threads between two calls.
// taken(): the consumer. Everything else: one thread at a time, ensured by the driver.
//
// If the system has no memory for operations or ragged rows, copy() throws std::bad_alloc, and goes on when it is called
// again. Lists of the plan grow by a few bytes a pass, with an adaptive factor a batch, and by 4 bytes a use where passes
// that flow have more uses in the pool than one of them; a system without these ends the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_memory.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/replay.hpp"
#include "core/stage/batch_pool.hpp"
#include "core/stage/plan_view.hpp"
#include "core/stage/row_copier.hpp"
#include "core/stage/slot_pool.hpp"
#include "core/sync/atomic.hpp"

namespace pyecho {

class Executor {
 public:
  // `memory`: of the slots, in the format of batches.layout(). `depth`: maximum of batches that are planned and not
  // yet copied; if it keeps items, not yet taken. `stream`: copy past the caches (stream_copy.hpp). The other
  // arguments and the storage outlive the executor.
  Executor(SlotPool& slots, BatchPool& batches, const PlanConfig& plan, SlotMemory& memory, std::uint32_t depth,
           bool stream, RowCopier::Programs programs = {});
  // Returns the bytes that an executor of this plan and depth allocates.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& plan, std::uint32_t depth) {
    return Plan::size_bytes(plan) + depth * sizeof(Parked) + plan.slots * sizeof(std::uint32_t);
  }

  // Drops everything and returns a replay of the plan to `position`. The caller runs it, and resets the slots to those
  // it leaves free. No other thread may be inside.
  Replay begin(PlanPosition position);
  // While the driver is halted: returns the plan, which has been fed all that was committed.
  const Plan& fed_plan() {
    slots_.feed(plan_);
    return plan_;
  }
  // Same, copies what is planned, and adds the open batch, if there is one, to `batches`.
  const Plan& settle(std::vector<const Batch*>& batches);

  // kOk: `batch` is planned, and its rows must be copied. kEnd: the iteration is over; the next call starts the next
  // one. kEmpty: needed() more items are missing. kExhausted: a block is missing. kClosed: finished, stopped, or
  // halted. `awaited`: see Plan::draw().
  Outcome plan(Batch*& batch, bool awaited);
  // Copies the rest of a batch that plan() returned, pads its rows, sends it to its device, if any, and frees each slot
  // whose last use was copied, once. Throws std::bad_alloc; then the batch is not whole, and another call goes on.
  void copy(Batch& batch, bool by_consumer = false);
  // Copies the rows of a batch that are planned and not yet copied. Returns false if there are none. Throws as copy().
  bool copy_planned(Batch& batch);

  [[nodiscard]] bool adaptive() const noexcept { return plan_.config().adaptive(); }
  // Returns true if an adaptive factor has used an item more often than it must in a batch that is planned.
  [[nodiscard]] bool repeats(const Batch& batch) const noexcept {
    return adaptive() && std::ranges::any_of(std::span(batch.uses).first(batch.rows),
                                             [&](const Use& use) { return use.ordinal >= plan_.config().min_uses; });
  }
  [[nodiscard]] bool finished() const noexcept { return plan_.finished(); }
  // Call after a replay has brought the plan to its position.
  void resume(const Replay& replay) {
    iteration_ = replay.plan().epoch() + replay.iterations();
    uses_ = replay.uses_drawn();
    view_.publish(plan_);
  }
  // True if slots stay filled until taken().
  [[nodiscard]] bool keeps_items() const noexcept { return copier_.transforms(); }
  // If it keeps items: the consumer has got the next batch, and no state will hold it any more. The consumer's thread.
  void taken();
  // For any thread.
  [[nodiscard]] const PlanView& view() const noexcept { return view_; }
  // After plan() returned kEmpty: returns how many items must be committed before the open batch can be complete, at
  // most as many as there are slots for.
  [[nodiscard]] std::uint64_t needed() const noexcept {
    const std::uint32_t missing = layout_.rows() - (open_ == nullptr ? 0 : open_->rows);
    const std::size_t kept = keeps_items() ? parked_[planned_ % parked_.size()].count : 0;
    return std::min<std::uint64_t>(plan_.min_items(missing), slots_.cycle() - plan_.resident() - kept);
  }

 private:
  // Slots of a batch: a list through parked_next_.
  struct Parked {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    bool whole = false;
  };

  Outcome draw(bool awaited);
  bool copy_open();
  void copied(std::uint64_t batch, std::span<const std::uint32_t> slots, bool whole) noexcept;
  bool release_parked(std::uint64_t batch) noexcept;
  void release(std::span<const std::uint32_t> slots) noexcept;

  SlotPool& slots_;
  BatchPool& batches_;
  const SlotLayout& layout_;
  SlotMemory& memory_;
  Plan plan_;
  const RowCopier copier_;
  PlanView view_;
  Batch* open_ = nullptr;        // the batch that is being planned
  std::uint64_t planned_ = 0;    // batches planned so far, in all iterations, and the number of the next one
  std::uint64_t iteration_ = 0;  // the epoch that is being planned, of which
  std::uint64_t uses_ = 0;       // uses are in batches that are whole

  Sequence<> front_;  // the oldest batch that is not whole
  std::mutex mutex_;
  std::vector<Parked> parked_;              // by batch number modulo its size
  std::vector<std::uint32_t> parked_next_;  // by slot
};

}  // namespace pyecho
