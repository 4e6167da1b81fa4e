#include "core/stage/executor.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/memory/stream_copy.hpp"
#include "core/plan/random.hpp"
#include "core/stage/copy_leaf.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho {
namespace {

// How many rows ahead of the copy are prefetched, and how many bytes of each. That hides the memory latency of small
// rows; in longer rows the processor's own prefetcher takes over after the first lines.
constexpr std::uint32_t kPrefetchRows = 6;
constexpr std::size_t kPrefetchBytes = 512;
constexpr std::size_t kPrefetchStep = 64;

// So many bytes of rows are copied leaf by leaf, and at least so many rows. More at a time would be prefetched in
// bursts, and miss.
constexpr std::size_t kColumnBytes = 1024;
constexpr std::size_t kColumnRows = 4;

// Rows copied before their slots are reported, but at most about kGroupBytes. A read-modify-write after every row would
// wait until the row has left the store buffer, and it is cheaper to wake producers for several slots at once.
constexpr std::uint32_t kGroupRows = 32;
constexpr std::size_t kGroupBytes = std::size_t{256} << 10;

// Returns aligned memory of this thread for operations, at least so many bytes.
std::byte* scratch_of_thread(std::size_t size_bytes) {
  struct Free {
    void operator()(std::byte* memory) const noexcept { ::operator delete[](memory, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<std::byte[], Free> memory;
  thread_local std::size_t has_bytes = 0;
  if (size_bytes > has_bytes) {
    memory.reset(new (std::align_val_t{64}) std::byte[size_bytes]);
    has_bytes = size_bytes;
  }
  return memory.get();
}

}  // namespace

Executor::Executor(SlotPool& slots, BatchPool& batches, const PlanConfig& plan, SlotMemory& memory, std::uint32_t depth,
                   bool stream, Programs programs)
    : slots_(slots),
      batches_(batches),
      layout_(batches.layout()),
      memory_(memory),
      stream_(stream),
      programs_(std::move(programs)),
      plan_(plan),
      parked_(depth) {
  for (Parked& parked : parked_) {
    parked.slots.reserve(layout_.rows());
  }
}

// ---------------------------------------------------------------- planning

Replay Executor::begin(PlanPosition position) {
  if (open_ != nullptr) {
    batches_.give_back(std::exchange(open_, nullptr), false);
  }
  batches_.forget_refusal();
  for (Parked& parked : parked_) {
    parked.slots.clear();
    parked.whole = false;
  }
  front_.store_release(planned_);
  iteration_ = position.epoch;
  uses_ = 0;
  Replay replay(plan_, layout_.rows(), std::move(position));
  view_.begin(plan_);
  return replay;
}

const Plan& Executor::settle(std::vector<const Batch*>& batches) {
  slots_.feed(plan_);
  if (open_ != nullptr) {
    copy_planned(*open_);
    batches.push_back(open_);
  }
  return plan_;
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
        if (slots_.feed(plan_) || (open_ != nullptr && copy_planned(*open_))) {
          continue;
        }
        return outcome;
      default:
        return outcome;
    }
  }
}

// ---------------------------------------------------------------- copying

void Executor::prefetch(std::uint32_t slot) const noexcept {
  const std::byte* const begin = memory_.data(slot);
  const std::size_t bytes = std::min(layout_.slot_bytes(), kPrefetchBytes);
  for (std::size_t offset = 0; offset < bytes; offset += kPrefetchStep) {
    __builtin_prefetch(begin + offset);
  }
}

// Returns the number from which operations draw for a row: the same for any batch size, and on any rank that has the
// row's stream.
std::uint64_t Executor::key_of(const Batch& batch, std::uint32_t row) const noexcept {
  const PlanConfig& config = plan_.config();
  const std::uint64_t use = batch.begin + row;
  const std::uint64_t stream = config.first_stream + use % config.streams * config.stream_step;
  return ops::key_of_use(seed_of_stream(config.seed, stream), batch.epoch, use / config.streams);
}

// Leaf by leaf: each is written to one place, and its size is looked at once for all rows.
void Executor::copy_rows(Batch& batch, std::uint32_t first, std::uint32_t count) const {
  const std::span<const Use> rows = std::span(batch.uses).subspan(first, count);
  std::byte* const block = batch.memory.data();
  for (std::size_t i = 0; i < layout_.leaves().size(); ++i) {
    const SlotLayout::Leaf& leaf = layout_.leaves()[i];
    if (leaf.variable.axes > 0 || (!programs_.empty() && programs_[i] != nullptr)) {
      transform_rows(batch, i, first, rows);
    } else {
      copy_leaf(block + leaf.batch_offset + first * leaf.row_bytes, memory_.data() + leaf.slot_offset,
                layout_.slot_bytes(), rows, leaf.size_bytes, stream_);
    }
  }
  if (layout_.with_info()) {
    std::byte* index = block + layout_.source_index_offset() + first * sizeof(std::int64_t);
    std::byte* ordinal = block + layout_.use_offset() + first * sizeof(std::int32_t);
    for (const Use& use : rows) {
      const auto of_source = static_cast<std::int64_t>(use.source_index);
      const auto of_use = static_cast<std::int32_t>(use.ordinal);
      std::memcpy(index, &of_source, sizeof(of_source));
      std::memcpy(ordinal, &of_use, sizeof(of_use));
      index += sizeof(of_source);
      ordinal += sizeof(of_use);
    }
  }
}

// Copies rows of a leaf that has a program, or a variable size, or both.
void Executor::transform_rows(Batch& batch, std::size_t index, std::uint32_t first, std::span<const Use> rows) const {
  const SlotLayout::Leaf& leaf = layout_.leaves()[index];
  const ops::Program* const program = programs_.empty() ? nullptr : programs_[index].get();
  std::byte* region = batch.memory.data() + leaf.batch_offset + first * leaf.row_bytes;
  for (const Use& use : rows) {
    const std::byte* item = memory_.data(use.slot) + leaf.slot_offset;
    std::span<const std::uint64_t> shape;
    std::size_t size_bytes = leaf.row_bytes;  // of the row's elements
    if (leaf.variable.axes > 0) {
      const VariableItem& variable = memory_.item(use.slot, leaf);
      item = variable.data;
      shape = variable.shape(leaf);
      size_bytes = variable.size_bytes;
    } else {
      shape = program->item().shape;
    }
    std::byte* to = region;
    if (leaf.ragged) {
      if (program == nullptr) {
        std::memcpy(region, shape.data(), leaf.row_bytes);
      } else {
        const std::vector<std::uint64_t> of_row = program->output_shape(shape);
        size_bytes = ops::ArrayType{.element_bytes = program->output().element_bytes, .shape = of_row}.size_bytes();
        std::memcpy(region, of_row.data(), leaf.row_bytes);
      }
      to = batch.values[index].append(size_bytes);
    }
    if (program == nullptr) {
      std::memcpy(to, item, size_bytes);
    } else {
      program->run(key_of(batch, first), item, shape, to, scratch_of_thread(program->scratch_bytes(shape)), stream_);
    }
    ++first;
    region += leaf.row_bytes;
  }
}

bool Executor::copy_planned(Batch& batch) {
  if (batch.copied == batch.rows) {
    return false;
  }
  trace::Span span(trace::Kind::kGather);
  span.set_value(batch.rows - batch.copied);
  const auto group_rows =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kGroupBytes / layout_.slot_bytes(), 1, kGroupRows));
  const auto at_once = static_cast<std::uint32_t>(std::max(kColumnBytes / layout_.slot_bytes(), kColumnRows));
  const Use* const uses = batch.uses.data();
  const std::uint32_t end = batch.rows;
  std::uint32_t row = batch.copied;
  std::uint32_t fresh = 0;
  for (std::uint32_t ahead = row; ahead < std::min(row + kPrefetchRows, end); ++ahead) {
    prefetch(uses[ahead].slot);
  }
  while (row < end) {
    const std::span<const Use> group = std::span(batch.uses).subspan(row, std::min(group_rows, end - row));
    const std::uint32_t group_end = row + static_cast<std::uint32_t>(group.size());
    std::array<std::uint32_t, kGroupRows> spent;  // NOLINT(cppcoreguidelines-pro-type-member-init): written below
    std::size_t count = 0;
    while (row < group_end) {
      const std::uint32_t rows = std::min(at_once, group_end - row);
      for (std::uint32_t ahead = row + kPrefetchRows; ahead < std::min(row + kPrefetchRows + rows, end); ++ahead) {
        prefetch(uses[ahead].slot);
      }
      copy_rows(batch, row, rows);
      row += rows;
    }
    for (const Use& use : group) {
      fresh += use.ordinal == 0 ? 1 : 0;
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
    if (count > 0) {
      copied(batch.number, std::span(spent).first(count), false);
    }
  }
  batch.copied = end;
  batch.fresh += fresh;
  if (stream_) {
    stream_fence();  // before the batch is handed over; the slots released above were only read
  }
  return true;
}

// Releases or parks slots whose last uses, in this batch, have been copied. `whole`: all rows of the batch have been
// copied.
void Executor::copied(std::uint64_t batch, std::span<const std::uint32_t> slots, bool whole) {
  const bool keep = keeps_items();
  if (keep && slots.empty()) {
    return;
  }
  if (keep || front_.load_acquire() != batch) {  // [S2] pairs with [S1]
    const std::scoped_lock lock(mutex_);
    if (keep || front_.load_relaxed() != batch) {
      Parked& parked = parked_[batch % parked_.size()];
      // Allocates only if more items than a batch has rows leave between two uses.
      parked.slots.insert(parked.slots.end(), slots.begin(), slots.end());
      parked.whole = whole && !keep;
      return;
    }
  }
  release(slots);
  if (whole) {
    const std::scoped_lock lock(mutex_);
    for (std::uint64_t front = batch + 1;; ++front) {
      Parked& parked = parked_[front % parked_.size()];
      front_.store_release(front);  // [S1] pairs with [S2]
      release(parked.slots);
      parked.slots.clear();
      if (!std::exchange(parked.whole, false)) {
        break;
      }
    }
  }
}

void Executor::release(std::span<const std::uint32_t> slots) {
  memory_.drop(slots);
  slots_.release(slots);
}

void Executor::taken() {
  {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t front = front_.load_relaxed();
    Parked& parked = parked_[front % parked_.size()];
    release(parked.slots);
    parked.slots.clear();
    front_.store_release(front + 1);
  }
  slots_.announce_released();
}

void Executor::copy(Batch& batch) {
  copy_planned(batch);
  batches_.send(batch);
  copied(batch.number, {}, true);
  slots_.announce_released();  // producers may sleep for these slots, and this thread may leave the stage now
}

}  // namespace pyecho
