// From a plan to planned batches, one at a time. Never waits; the driver waits (driver.hpp).
//
// A step takes the slots that producers have filled, feeds them to the plan, and plans rows of the open batch, until
// the batch is complete or an item or a block is missing. While an item is missing, the rows planned so far are copied.
// That frees slots as early as possible and prevents a deadlock of a producer that waits for a slot and a batch that
// waits for an item.
//
// One thread at a time, ensured by the driver. Lists of the plan grow by a few bytes a pass, with an adaptive factor a
// batch, and by 4 bytes a use where passes that flow have more uses in the pool than one of them; a system without these
// ends the process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/plan/replay.hpp"
#include "core/stage/batch_pool.hpp"
#include "core/stage/feed.hpp"
#include "core/stage/gather.hpp"
#include "core/stage/plan_view.hpp"
#include "core/stage/slot_ring.hpp"

namespace pyecho {

class Planner {
 public:
  // The arguments outlive the planner.
  Planner(SlotRing& slots, Feed& feed, Plan& plan, BatchPool& batches, Gather& gather)
      : slots_(slots), feed_(feed), plan_(plan), batches_(batches), gather_(gather), rows_(batches.layout().rows()) {}

  // Drops everything and returns a replay of the plan to `position`. No other thread may be inside.
  Replay begin(PlanPosition position);
  // Call after the replay has brought the plan there.
  void resume(const Replay& replay);

  // kOk: `batch` is planned, and its rows must be copied. kEnd: the iteration is over; the next call starts the next
  // one. kEmpty: needed() more items are missing. kExhausted: a block is missing. kClosed: finished, stopped, or
  // halted. `awaited`: see Plan::draw(). `alone`: no planned batch waits to be copied, so rows of the open one may be.
  Outcome next(Batch*& batch, bool awaited, bool alone);
  // After next() returned kEmpty: returns how many items must be committed before the open batch can be complete, at
  // most as many as there are slots for.
  [[nodiscard]] std::uint64_t needed() const noexcept {
    const std::uint32_t missing = rows_ - (open_ == nullptr ? 0 : open_->rows);
    return std::min<std::uint64_t>(plan_.min_items(missing),
                                   slots_.cycle() - plan_.resident() - gather_.kept(planned_));
  }
  [[nodiscard]] bool adaptive() const noexcept { return plan_.config().adaptive(); }
  // Returns true if an adaptive factor has used an item more often than it must in a batch that is planned.
  [[nodiscard]] bool repeats(const Batch& batch) const noexcept {
    return adaptive() && std::ranges::any_of(std::span(batch.uses).first(batch.rows),
                                             [&](const Use& use) { return use.ordinal >= plan_.config().min_uses; });
  }
  [[nodiscard]] bool finished() const noexcept { return plan_.finished(); }
  // For any thread.
  [[nodiscard]] const PlanView& view() const noexcept { return view_; }

  // While the driver is halted: returns the plan, which has been fed all that was committed.
  const Plan& fed_plan() {
    feed_.drain_into(plan_);
    return plan_;
  }
  // Same, copies what is planned, and adds the open batch, if there is one, to `batches`.
  const Plan& settle(std::vector<const Batch*>& batches);

 private:
  Outcome draw(bool awaited);
  bool copy_open();

  SlotRing& slots_;
  Feed& feed_;
  Plan& plan_;
  BatchPool& batches_;
  Gather& gather_;
  const std::uint32_t rows_;
  PlanView view_;
  Batch* open_ = nullptr;        // the batch that is being planned
  std::uint64_t planned_ = 0;    // batches planned so far, in all iterations, and the number of the next one
  std::uint64_t iteration_ = 0;  // the epoch that is being planned, of which
  std::uint64_t uses_ = 0;       // uses are in batches that are whole
};

}  // namespace pyecho
