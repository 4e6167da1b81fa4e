#include "core/stage/echo_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/memory/checksum.hpp"
#include "core/memory/stream_copy.hpp"
#include "core/stage/buffer_sizes.hpp"

namespace pyecho {
namespace {

// A worker is woken once this many bytes are committed, so that a batch of large examples is not copied in one late
// slots_ahead.
constexpr std::size_t kWakeBytes = std::size_t{1} << 20;
// A waiting consumer makes batches itself if examples have at least this many bytes. Each change of the planning thread
// moves the plan between the processors' caches. For smaller examples that costs more than the second copier gains.
constexpr std::size_t kHelpBytes = 512;

}  // namespace

EchoBuffer::EchoBuffer(const EchoConfig& config) : EchoBuffer(config, settled(config)) {}

EchoBuffer::EchoBuffer(EchoConfig given, const BufferSizes& sizes, std::shared_ptr<BatchPool> batches)
    : given_(std::move(given)),
      config_(sizes.config),
      layout_(sizes.layout),
      slot_memory_(layout_, sizes.slots, config_.shared_slots),
      blocks_(batches == nullptr ? sizes.blocks : static_cast<std::uint32_t>(batches->blocks())),
      batches_ahead_(sizes.depth + 1),
      batches_(batches != nullptr
                   ? std::move(batches)
                   : std::make_shared<BatchPool>(
                         layout_, blocks_,
                         config_.max_bytes == kUnlimited
                             ? kUnlimited
                             : config_.max_bytes - (min_bytes_of(config_) - blocks_ * sizes.block_bytes()),
                         config_.batch_memory, config_.uploads)),
      ring_(sizes.slots, sizes.ahead, config_.spare, sizes.streamed(sizes.slots * layout_.slot_bytes())),
      feed_(ring_),
      plan_(plan_of(config_, sizes.slots)),
      gather_(ring_, *batches_, slot_memory_, plan_, sizes.parked(), sizes.streamed(blocks_ * layout_.batch_bytes()),
              config_.programs),
      planner_(ring_, feed_, plan_, *batches_, gather_),
      driver_(ring_, feed_, planner_, gather_, *batches_,
              {.threads = config_.threads,
               .depth = sizes.depth,
               .consumer_helps = layout_.row_bytes() >= kHelpBytes && config_.uploads == nullptr,
               .wake_items = std::max<std::size_t>(1, kWakeBytes / layout_.slot_bytes())}) {
  static_cast<void>(begin_epoch(*this, config_.epoch, {.items = config_.items}));
}

// ---------------------------------------------------------------- consumer

// Turns the batch that `take` gets from the driver into a lease, and counts it.
template <class Take>
Outcome EchoBuffer::hand_out(Lease& lease, const Take& take) {
  if (ring_.forked()) {
    return Outcome::kForked;
  }
  counts_.clock.enter();
  if (std::exchange(owes_, false)) {
    gather_.taken();
  }
  Batch* batch = nullptr;
  const Outcome outcome = take(batch);
  if (outcome == Outcome::kOk) {
    lease = Lease(batches_, batch);
    owes_ = gather_.keeps_items();
    if (!config_.drop_last || batch->rows == config_.plan.batch_size) {
      counts_.count(batch->rows, batch->fresh);
      counts_.count_batch();
      counts_.clock.leave();
    }
  } else if (outcome == Outcome::kEnd) {
    counts_.clock.end_iteration();
  }
  return outcome;
}

Outcome EchoBuffer::try_acquire(Lease& lease) {
  return hand_out(lease, [this](Batch*& batch) { return driver_.try_acquire(batch); });
}

Outcome EchoBuffer::acquire(Lease& lease, Deadline deadline) {
  return hand_out(lease, [&](Batch*& batch) { return driver_.acquire(batch, deadline); });
}

void EchoBuffer::fail(std::string message) {
  if (ring_.forked()) {
    return;  // a thread that stayed in the parent may hold the lock
  }
  {
    const std::scoped_lock lock(failure_mutex_);
    if (!failure_ && !ring_.closed()) {
      failure_ = std::move(message);
    }
  }
  ring_.close();
}

bool EchoBuffer::failed() const {
  const std::scoped_lock lock(failure_mutex_);
  return failure_.has_value();
}

std::optional<std::string> EchoBuffer::take_failure() {
  const std::scoped_lock lock(failure_mutex_);
  return std::exchange(failure_, std::nullopt);
}

// ---------------------------------------------------------------- saving and resuming

void EchoBuffer::set_halted(bool halted) {
  if (!ring_.forked()) {
    driver_.set_halted(halted);
  }
}

PlanPosition EchoBuffer::inspect(std::vector<Unspent>& unspent, std::vector<const Batch*> untaken,
                                 std::uint64_t iterations, std::uint64_t batches) {
  const Plan& plan = driver_.settle(untaken);
  PlanPosition at = plan.position(iterations, batches * config_.plan.batch_size);
  unspent.clear();
  unspent.reserve(ring_.slots());
  plan.each_item([&](std::uint32_t slot, std::uint64_t number) {
    unspent.push_back({.number = number, .batch = nullptr, .place = slot});
  });
  for (const Batch* const batch : untaken) {
    auto number = batch->spent.begin();
    for (std::uint32_t row = 0; row < batch->rows; ++row) {
      if (batch->uses[row].last || plan.config().adaptive()) {
        unspent.push_back({.number = *number++, .batch = batch, .place = row});
      }
    }
  }
  std::ranges::sort(unspent, {}, [](const Unspent& item) {  // of several places of an item, its slot first
    return std::pair(item.number, item.batch != nullptr);
  });
  const auto more = std::ranges::unique(unspent, {}, &Unspent::number);  // with an adaptive factor
  unspent.erase(more.begin(), more.end());
  for (Unspent& item : unspent) {
    item.number -= at.segment.taken;
  }
  return at;
}

std::uint64_t EchoBuffer::copy_items(std::span<const Unspent> items, std::span<std::byte* const> columns) const {
  for (std::size_t leaf = 0; leaf < columns.size(); ++leaf) {
    const SlotLayout::Leaf& of_leaf = layout_.leaves()[leaf];
    std::byte* to = columns[leaf];
    for (std::size_t i = 0; i < items.size() && of_leaf.variable.axes > 0; ++i) {
      const VariableItem& from = variable_of(items[i], of_leaf);
      std::memcpy(to, from.data(of_leaf), from.size_bytes);
      to += from.size_bytes;
    }
  }
  return sum_in_parallel(items.size(), layout_.example_bytes(), [&](std::size_t begin, std::size_t end) {
    std::uint64_t sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t leaf = 0; leaf < columns.size(); ++leaf) {
        const SlotLayout::Leaf& of_leaf = layout_.leaves()[leaf];
        if (of_leaf.size_bytes == 0 || of_leaf.variable.axes > 0) {
          continue;  // a reference, or copied above
        }
        const std::span from(data_of(items[i], of_leaf), of_leaf.size_bytes);
        sum += checksum(from, row_seed(items[i].number, leaf), columns[leaf] + i * of_leaf.size_bytes);
      }
    }
    return sum;
  });
}

std::shared_ptr<EchoBuffer> EchoBuffer::with_room_for(std::size_t items) const {
  const std::size_t needed = items + (config_.plan.min_uses > 0 ? config_.plan.capacity : 0);
  if (needed <= ring_.slots()) {
    return nullptr;
  }
  EchoConfig larger = given_;
  larger.spare = 0;
  const std::size_t missing = needed - sizes_of(larger).slots;  // what was asked for may be settled higher or lower
  if (missing > SlotRing::kMaxSlots) {
    throw std::length_error("no buffer has slots for so many items");
  }
  larger.spare = static_cast<std::uint32_t>(missing);
  if (const std::size_t least = min_bytes_of(larger); least > larger.max_bytes) {
    throw std::length_error("the " + std::to_string(items) + " items of the state need max_bytes of " +
                            std::to_string(least) + ", and this buffer has " + std::to_string(larger.max_bytes));
  }
  const BufferSizes sizes = settled(larger);
  return std::shared_ptr<EchoBuffer>(
      new EchoBuffer(std::move(larger), sizes, given_.uploads == nullptr ? nullptr : batches_));
}

Replay EchoBuffer::begin(PlanPosition position) {
  stop();
  owes_ = false;
  take_failure();
  return driver_.begin(std::move(position));
}

void EchoBuffer::resume(const Replay& replay) {
  feed_.reset(replay);  // first, because it throws if a reservation is open
  driver_.resume(replay);
  Feed::is_fresh(replay) ? slot_memory_.drop_all() : slot_memory_.drop(replay.free_slots());
}

// ---------------------------------------------------------------- any thread

void EchoBuffer::stop() {
  if (!ring_.forked()) {  // in a forked child, a thread that stayed in the parent may hold a lock
    ring_.stop();
    driver_.alert();
  }
}

EchoStats EchoBuffer::stats() const noexcept {
  EchoStats stats = counts_.stats(feed_.committed(), planner_.view().resident());
  stats.batches = counts_.batches();
  stats.bytes_gathered = stats.emitted * layout_.row_bytes();
  stats.outstanding_leases = batches_->outstanding();
  stats.batch_blocks = batches_->blocks();
  stats.grown_blocks = stats.batch_blocks - std::min<std::uint64_t>(stats.batch_blocks, blocks_);
  return stats;
}

}  // namespace pyecho
