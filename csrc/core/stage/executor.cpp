#include "core/stage/executor.hpp"

#include <array>
#include <new>
#include <utility>

#include "core/memory/stream_copy.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho {
namespace {

// Rows ahead of the copy that are prefetched. That hides the memory latency of small rows.
constexpr std::uint32_t kPrefetchRows = 6;

// So many bytes of rows are copied leaf by leaf, and at least so many rows. More at a time would be prefetched in
// bursts, and miss.
constexpr std::size_t kColumnBytes = 1024;
constexpr std::size_t kColumnRows = 4;

// Rows copied before their slots are reported, but at most about kGroupBytes. A read-modify-write after every row would
// wait until the row has left the store buffer, and it is cheaper to wake producers for several slots at once.
constexpr std::uint32_t kGroupRows = 32;
constexpr std::size_t kGroupBytes = std::size_t{256} << 10;

// Orders streaming stores at the end of a block, however it is left.
class Fence {
 public:
  explicit Fence(bool streamed) noexcept : streamed_(streamed) {}
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  ~Fence() {
    if (streamed_) {
      stream_fence();
    }
  }

 private:
  bool streamed_;
};

}  // namespace

Executor::Executor(SlotPool& slots, BatchPool& batches, const PlanConfig& plan, SlotMemory& memory, std::uint32_t depth,
                   bool stream, RowCopier::Programs programs)
    : slots_(slots),
      batches_(batches),
      layout_(batches.layout()),
      memory_(memory),
      plan_(plan),
      copier_(layout_, memory, plan_.config(), stream, std::move(programs)),
      parked_(depth),
      parked_next_(plan.slots) {}

// ---------------------------------------------------------------- planning

Replay Executor::begin(PlanPosition position) {
  if (open_ != nullptr) {
    batches_.give_back(std::exchange(open_, nullptr), false);
  }
  batches_.forget_refusal();
  std::ranges::fill(parked_, Parked());
  front_.store_release(planned_);
  iteration_ = position.epoch;
  uses_ = 0;
  Replay replay(plan_, layout_.rows(), std::move(position));
  view_.begin(plan_);
  return replay;
}

const Plan& Executor::settle(std::vector<const Batch*>& batches) {
  const Plan& plan = fed_plan();
  if (open_ != nullptr) {
    copy_planned(*open_);
    batches.push_back(open_);
  }
  return plan;
}

// Draws rows of the open batch: kOk when it is complete, or kEmpty, kEnd, kExhausted.
Outcome Executor::draw(bool awaited) {
  if (open_ == nullptr) {
    const Outcome outcome = plan_.ready(awaited);
    plan_.take_left([&](std::span<const std::uint32_t> slots) { copied(planned_, slots, false); });
    if (outcome != Outcome::kOk) {
      return outcome;  // finds the end of the iteration before a block is needed
    }
    open_ = batches_.obtain();
    if (open_ == nullptr) {
      return Outcome::kExhausted;
    }
    open_->number = planned_;
    open_->epoch = iteration_;
    open_->begin = uses_;
  }
  std::uint32_t drawn = 0;
  const Outcome outcome = plan_.draw(open_->missing(), drawn, awaited);
  open_->rows += drawn;
  return outcome == Outcome::kEnd ? Outcome::kOk : outcome;  // the end completes the batch, which may be short
}

Outcome Executor::plan(Batch*& batch, bool awaited) {
  trace::Span span(trace::Kind::kPlan);
  for (;;) {
    if (plan_.finished() || slots_.stopped() || slots_.halted()) {
      span.cancel();
      return Outcome::kClosed;
    }
    slots_.feed(plan_);
    const Outcome outcome = draw(awaited);
    view_.publish(plan_);
    trace::record_fill(this, view_.resident());
    switch (outcome) {
      case Outcome::kOk:
        batch = std::exchange(open_, nullptr);
        ++planned_;
        uses_ += batch->rows;
        span.set_value(batch->rows);
        plan_.end_batch();
        return outcome;
      case Outcome::kEnd:
        plan_.next_iteration();
        ++iteration_;
        uses_ = 0;
        batches_.end_epoch();
        return outcome;
      case Outcome::kEmpty:
        // Looks once more, because copying here holds up the plan.
        if (slots_.feed(plan_) || copy_open()) {
          continue;
        }
        return outcome;
      default:
        return outcome;
    }
  }
}

// ---------------------------------------------------------------- copying

// Copies the planned rows of the open batch, which may free slots. Returns false if there are none, or no memory for
// them: copy() tries again, and only rows of which slots stay filled need memory.
bool Executor::copy_open() {
  try {
    return open_ != nullptr && copy_planned(*open_);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool Executor::copy_planned(Batch& batch) {
  if (batch.copied == batch.rows) {
    return false;
  }
  // Before the batch is handed over, also where memory gave out and another thread goes on. The slots released below
  // were only read.
  const Fence fence(copier_.streams());
  trace::Span span(trace::Kind::kGather);
  span.set_value(batch.rows - batch.copied);
  const auto group_rows =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kGroupBytes / layout_.slot_bytes(), 1, kGroupRows));
  const auto at_once = static_cast<std::uint32_t>(std::max(kColumnBytes / layout_.slot_bytes(), kColumnRows));
  const Use* const uses = batch.uses.data();
  const std::uint32_t end = batch.rows;
  std::uint32_t row = batch.copied;
  for (std::uint32_t ahead = row; ahead < std::min(row + kPrefetchRows, end); ++ahead) {
    copier_.prefetch(uses[ahead].slot);
  }
  std::ranges::for_each(batch.values, &Values::undo);  // rows of the last call, if it failed
  while (row < end) {
    const std::span<const Use> group = std::span(batch.uses).subspan(row, std::min(group_rows, end - row));
    const std::uint32_t group_end = row + static_cast<std::uint32_t>(group.size());
    std::array<std::uint32_t, kGroupRows> spent;  // NOLINT(cppcoreguidelines-pro-type-member-init): written below
    std::size_t count = 0;
    while (row < group_end) {
      const std::uint32_t rows = std::min(at_once, group_end - row);
      for (std::uint32_t ahead = row + kPrefetchRows; ahead < std::min(row + kPrefetchRows + rows, end); ++ahead) {
        copier_.prefetch(uses[ahead].slot);
      }
      copier_.copy(batch, row, rows);
      row += rows;
    }
    for (const Use& use : group) {
      batch.fresh += use.ordinal == 0 ? 1 : 0;
      spent[count] = use.slot;
      count += use.last ? 1 : 0;  // no branch, because it would be unpredictable
    }
    if (plan_.config().adaptive()) {
      for (const Use& use : group) {
        batch.spent.push_back(plan_.number_of(use.slot));
      }
    } else {
      for (const std::uint32_t slot : std::span(spent).first(count)) {
        batch.spent.push_back(plan_.number_of(slot));  // never allocates
      }
    }
    batch.copied = group_end;
    std::ranges::for_each(batch.values, &Values::keep);
    if (count > 0) {
      copied(batch.number, std::span(spent).first(count), false);
    }
  }
  return true;
}

// Releases or parks slots whose last uses, in this batch, have been copied. `whole`: all rows of the batch have been
// copied.
void Executor::copied(std::uint64_t batch, std::span<const std::uint32_t> slots, bool whole) noexcept {
  const bool keep = keeps_items();
  if (keep && slots.empty()) {
    return;
  }
  if (keep || front_.load_acquire() != batch) {  // [S2] pairs with [S1]
    const std::scoped_lock lock(mutex_);
    if (keep || front_.load_relaxed() != batch) {
      Parked& parked = parked_[batch % parked_.size()];
      for (const std::uint32_t slot : slots) {
        parked_next_[slot] = std::exchange(parked.first, slot);
      }
      parked.count += static_cast<std::uint32_t>(slots.size());
      parked.whole = whole && !keep;
      return;
    }
  }
  release(slots);
  if (whole) {
    const std::scoped_lock lock(mutex_);
    for (std::uint64_t front = batch + 1;; ++front) {
      front_.store_release(front);  // [S1] pairs with [S2]
      if (!release_parked(front)) {
        break;
      }
    }
  }
}

// Releases the slots parked for a batch. Returns true if it was whole. Needs the mutex.
bool Executor::release_parked(std::uint64_t batch) noexcept {
  Parked parked = std::exchange(parked_[batch % parked_.size()], {});
  std::array<std::uint32_t, kGroupRows> slots;  // NOLINT(cppcoreguidelines-pro-type-member-init): written below
  while (parked.count > 0) {
    std::size_t count = 0;
    for (; count < slots.size() && parked.count > 0; ++count, --parked.count) {
      slots[count] = std::exchange(parked.first, parked_next_[parked.first]);
    }
    release(std::span(slots).first(count));
  }
  return parked.whole;
}

void Executor::release(std::span<const std::uint32_t> slots) noexcept {
  memory_.drop(slots);
  slots_.release(slots);
}

void Executor::taken() {
  {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t front = front_.load_relaxed();
    release_parked(front);
    front_.store_release(front + 1);
  }
  slots_.announce_released();
}

void Executor::copy(Batch& batch, bool by_consumer) {
  copy_planned(batch);
  copier_.pad(batch);
  batches_.send(batch, by_consumer);
  copied(batch.number, {}, true);
  batch.whole = true;
  slots_.announce_released();  // producers may sleep for these slots, and this thread may leave the stage now
}

}  // namespace pyecho
