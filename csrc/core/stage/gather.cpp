#include "core/stage/gather.hpp"

#include <algorithm>
#include <array>
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

Gather::Gather(SlotRing& slots, BatchPool& batches, SlotMemory& memory, const Plan& plan, std::uint32_t depth,
               bool stream, RowCopier::Programs programs)
    : slots_(slots),
      batches_(batches),
      layout_(batches.layout()),
      memory_(memory),
      plan_(plan),
      copier_(layout_, memory, plan.config(), stream, std::move(programs)),
      parked_(depth),
      parked_next_(plan.config().slots) {}

void Gather::begin(std::uint64_t batch) {
  std::ranges::fill(parked_, Parked());
  front_.store_release(batch);
}

// ---------------------------------------------------------------- rows

void Gather::copy(Batch& batch, bool by_consumer) {
  if (batch.whole) {
    return;
  }
  copy_planned(batch);
  copier_.pad(batch);
  batches_.send(batch, by_consumer);
  copied(batch.number, {}, true);
  batch.whole = true;
  slots_.announce_released();  // producers may sleep for these slots, and this thread may leave the stage now
}

bool Gather::copy_planned(Batch& batch) {
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

// ---------------------------------------------------------------- slots

// Releases or parks slots whose last uses, in this batch, have been copied. `whole`: all rows of the batch have been
// copied.
void Gather::copied(std::uint64_t batch, std::span<const std::uint32_t> slots, bool whole) noexcept {
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
bool Gather::release_parked(std::uint64_t batch) noexcept {
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

void Gather::release(std::span<const std::uint32_t> slots) noexcept {
  memory_.drop(slots);
  slots_.release(slots);
}

void Gather::taken() {
  {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t front = front_.load_relaxed();
    release_parked(front);
    front_.store_release(front + 1);
  }
  slots_.announce_released();
}

}  // namespace pyecho
