#include "core/stage/echo_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/memory/checksum.hpp"
#include "core/memory/stream_copy.hpp"

namespace pyecho {
namespace {

// A worker is woken once this many bytes are committed, so that a batch of large examples is not copied in one late
// burst.
constexpr std::size_t kWakeBytes = std::size_t{1} << 20;
// A waiting consumer makes batches itself if examples have at least this many bytes. Each change of the planning thread
// moves the plan between the processors' caches. For smaller examples that costs more than the second copier gains.
constexpr std::size_t kHelpBytes = 512;
// Threads hand over in bursts, some tens of microseconds apart, because a sleeper needs that long to wake or to get the
// processor. So many bytes of batches are made ahead, and as many bytes of examples taken ahead of them, so that no
// thread runs dry in between.
constexpr std::size_t kAheadBytes = std::size_t{4} << 20;
constexpr std::uint64_t kMaxBlocks = 1U << 30;
constexpr std::uint32_t kMaxThreads = 256;
// No machine has more.
constexpr double kMaxBytes = 0x1.0p56;
// At most half of the possible slots are ahead of the pool; the rest are for the capacity.
constexpr std::uint32_t kMaxAhead = 1U << 29;

// Throws std::invalid_argument if no sizes can be computed from the configuration.
void check(const EchoConfig& config) {
  if (config.plan.batch_rows < 1 || config.plan.capacity < 1 || config.prefetch < 1 || config.burst < 1) {
    throw std::invalid_argument("batch_rows, capacity, prefetch and burst are at least 1");
  }
  if (config.plan.unique_in_batch && config.plan.capacity < config.plan.batch_rows) {
    throw std::invalid_argument("unique_in_batch needs a capacity of at least batch_rows");
  }
  if (config.plan.capacity > SlotPool::kMaxSlots - kMaxAhead) {
    throw std::invalid_argument("capacity must stay below 2^29");
  }
  if (std::uint64_t{config.prefetch} + config.threads + config.held > kMaxBlocks) {
    throw std::invalid_argument("prefetch, threads and held are less than 2^30 together");
  }
  if (config.uploads != nullptr && config.threads < 1) {
    throw std::invalid_argument("uploads need a thread");
  }
  if (config.threads > kMaxThreads) {
    throw std::invalid_argument("threads is at most 256");
  }
  if (config.steps > std::numeric_limits<std::uint64_t>::max() / config.plan.batch_rows) {
    throw std::invalid_argument("an iteration of so many steps has no end");
  }
}

}  // namespace

// The sizes of a buffer, and the configuration that they are of.
struct BufferSizes {
  EchoConfig config;
  SlotLayout layout;
  std::uint32_t slots = 0;   // spare ones included
  std::uint32_t ahead = 0;   // slots beyond the capacity
  std::uint32_t depth = 0;   // maximum of batches planned and not yet taken
  std::uint32_t blocks = 0;  // initial blocks of batches; more are added if the consumer keeps more than `held`
  // Spare slots to go on from a state: for items of batches made ahead, and see with_room_for().
  std::uint64_t states = 0;

  // Slots stay filled until the consumer has had their batch, because a state cannot have the items from its rows.
  [[nodiscard]] bool keeps_items() const noexcept { return !config.programs.empty() || layout.has_variable(); }
  // Batches of which slots wait to be released.
  [[nodiscard]] std::uint32_t parked() const noexcept { return depth + (keeps_items() ? 1 : 0); }
  // Most that items of variable size need, in slots and batches; counted only against a bound.
  [[nodiscard]] std::size_t variable_bytes() const noexcept {
    const std::size_t items = slots + (layout.has_ragged() ? std::size_t{blocks} * layout.rows() : 0);
    return config.max_bytes == kUnlimited ? 0 : items * layout.variable_bytes();
  }
  // Returns the bytes that the buffer allocates at first. Throws as EchoBuffer::min_bytes() does.
  [[nodiscard]] std::size_t bytes() const {
    const std::size_t block_bytes = BatchPool::block_bytes(layout);
    const std::size_t row_bytes = std::size_t{layout.rows()} * sizeof(std::uint32_t);  // of each batch ahead
    if (static_cast<double>(slots) * static_cast<double>(layout.slot_bytes() + layout.variable_bytes()) +
            static_cast<double>(blocks) * static_cast<double>(block_bytes + row_bytes) >
        kMaxBytes) {
      throw std::length_error("slots and batches do not fit the address space");
    }
    return HostMemory::rounded_bytes(slots * layout.slot_bytes()) + blocks * block_bytes + variable_bytes() +
           SlotPool::size_bytes(slots) + Executor::size_bytes(plan_of(config, slots), parked(), layout.rows()) +
           depth * sizeof(Batch*);
  }
  // True if so many bytes of slots or batches should be copied past the caches.
  [[nodiscard]] bool streamed(std::size_t bytes) const {
    std::size_t longest = 0;
    for (const LeafFormat& leaf : config.leaves) {
      longest = std::max({longest, leaf.slot_bytes, leaf.row_bytes});
    }
    return worth_streaming(bytes, longest);
  }
};

namespace {

// Throws std::invalid_argument, std::length_error.
BufferSizes sizes_of(const EchoConfig& config) {
  check(config);
  // Slots ahead of the pool: the fresh examples of the batches made ahead, and one burst, so that a source can produce
  // the next burst while the last one waits to be admitted.
  const std::uint32_t min_uses =
      config.plan.min_uses > 0 ? config.plan.min_uses : EchoFactor(config.plan.factor).min_uses();
  const std::uint64_t fresh_per_batch = (config.plan.batch_rows - 1) / min_uses + 1;
  const auto ahead = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(config.burst + config.prefetch * fresh_per_batch, 2, kMaxAhead));
  // Batches ready for the consumer, and one in each worker. Without workers no batches are made ahead.
  const std::uint32_t depth = config.threads == 0 ? 1 : config.prefetch + config.threads;
  const auto waiting = static_cast<std::uint32_t>(Plan::waiting_slots(config.plan.streams, config.plan.capacity));
  BufferSizes sizes{.config = config,
                    .layout = SlotLayout(config.leaves, config.plan.batch_rows, config.with_info),
                    .slots = config.plan.capacity + waiting + ahead + config.spare,
                    .ahead = ahead,
                    .depth = depth,
                    .blocks = depth + config.held,
                    .states = (depth + 1) * std::uint64_t{config.plan.batch_rows} +
                              (config.plan.min_uses > 0 ? config.plan.capacity : 0)};
  if (sizes.keeps_items()) {  // slots of the batches made ahead, and at least all of the open one
    const std::uint64_t kept = std::max<std::uint64_t>(config.plan.batch_rows, (depth + 1) * fresh_per_batch);
    sizes.slots += static_cast<std::uint32_t>(std::min<std::uint64_t>(kept, kMaxAhead));
  }
  return sizes;
}

// Returns the sizes of a buffer whose `prefetch` and `burst` are raised if batches and examples are small. Uses at most
// half of the memory that max_bytes leaves over; the other half is for batches that the consumer keeps.
BufferSizes settled(EchoConfig config) {
  const std::size_t least = EchoBuffer::min_bytes(config);
  if (least > config.max_bytes) {
    throw std::length_error("the slots and batches need max_bytes of " + std::to_string(least));
  }
  const BufferSizes asked = sizes_of(config);
  if (asked.bytes() > HostMemory::machine_bytes() && !config.batch_memory) {
    throw std::bad_alloc();  // now, rather than once every page of the machine has been touched
  }
  const std::size_t allowed = least + (config.max_bytes - least) / 2;
  // Raises `count` to as many as kAheadBytes hold, within `most` and `allowed`.
  const auto raise = [&](std::uint32_t& count, std::size_t bytes, std::size_t most) {
    const auto wanted = static_cast<std::uint32_t>(std::min(most, kAheadBytes / std::max<std::size_t>(1, bytes)));
    const std::uint32_t given = count;
    count = std::max(count, wanted);
    while (count > given && EchoBuffer::min_bytes(config) > allowed) {
      count = given + (count - given) / 2;
    }
  };
  const std::size_t variable = asked.layout.variable_bytes();
  raise(config.prefetch, asked.layout.batch_bytes() + (asked.layout.has_ragged() ? variable * asked.layout.rows() : 0),
        config.most_ahead);
  raise(config.burst, asked.layout.slot_bytes() + variable, config.plan.capacity);
  return sizes_of(config);
}

}  // namespace

std::size_t EchoBuffer::min_bytes(const EchoConfig& config) {
  BufferSizes sizes = sizes_of(config);
  const auto states = static_cast<std::uint32_t>(std::min<std::uint64_t>(sizes.states, kMaxSlots));
  sizes.slots += std::max(config.spare, states) - config.spare;
  return sizes.bytes();
}

EchoBuffer::EchoBuffer(const EchoConfig& config) : EchoBuffer(config, settled(config)) {}

EchoBuffer::EchoBuffer(EchoConfig given, const BufferSizes& sizes)
    : EchoStage(sizes.slots, sizes.ahead, sizes.config.spare, sizes.streamed(sizes.slots * sizes.layout.slot_bytes())),
      given_(std::move(given)),
      config_(sizes.config),
      layout_(sizes.layout),
      slot_memory_(layout_, sizes.slots, config_.shared_slots),
      blocks_(sizes.blocks),
      batches_ahead_(sizes.depth + 1),
      batches_(std::make_shared<BatchPool>(
          layout_, blocks_,
          config_.max_bytes == kUnlimited
              ? kUnlimited
              : config_.max_bytes - (min_bytes(config_) - blocks_ * BatchPool::block_bytes(layout_)),
          config_.batch_memory, config_.uploads)),
      executor_(*this, *batches_, plan_of(config_, sizes.slots), slot_memory_, sizes.parked(),
                sizes.streamed(blocks_ * layout_.batch_bytes()), config_.programs),
      driver_(executor_, *this, *batches_,
              {.threads = config_.threads,
               .depth = sizes.depth,
               .consumer_helps = layout_.row_bytes() >= kHelpBytes && config_.uploads == nullptr,
               .wake_items = std::max<std::size_t>(1, kWakeBytes / layout_.slot_bytes())}) {
  static_cast<void>(begin(config_.epoch, {.items = config_.items}));
}

// ---------------------------------------------------------------- consumer

// Turns the batch that `take` gets from the driver into a lease, and counts it.
template <class Take>
Outcome EchoBuffer::hand_out(Lease& lease, const Take& take) {
  if (forked()) {
    return Outcome::kForked;
  }
  clock_.enter();
  if (std::exchange(owes_, false)) {
    executor_.taken();
  }
  Batch* batch = nullptr;
  const Outcome outcome = take(batch);
  if (outcome == Outcome::kOk) {
    lease = Lease(batches_, batch);
    owes_ = executor_.keeps_items();
    if (!config_.drop_last || batch->rows == config_.plan.batch_rows) {
      count(batch->rows, batch->fresh);
      batches_taken_.store_relaxed(batches_taken_.load_relaxed() + 1);
      clock_.leave();
    }
  } else if (outcome == Outcome::kEnd) {
    clock_.end_iteration();
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
  if (forked()) {
    return;  // a thread that stayed in the parent may hold the lock
  }
  {
    const std::scoped_lock lock(failure_mutex_);
    if (!failure_ && !closed()) {
      failure_ = std::move(message);
    }
  }
  close();
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
  if (!forked()) {
    driver_.set_halted(halted);
  }
}

const Plan& EchoBuffer::inspect(std::vector<Unspent>& unspent, std::vector<const Batch*> untaken) {
  const Plan& plan = driver_.settle(untaken);
  unspent.clear();
  unspent.reserve(slots());
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
  return plan;
}

std::uint64_t EchoBuffer::copy_items(std::span<const Unspent> items, std::span<std::byte* const> columns) const {
  for (std::size_t leaf = 0; leaf < columns.size(); ++leaf) {
    const SlotLayout::Leaf& of_leaf = layout_.leaves()[leaf];
    std::byte* to = columns[leaf];
    for (std::size_t i = 0; i < items.size() && of_leaf.variable.axes > 0; ++i) {
      const VariableItem& from = variable_of(items[i], of_leaf);
      std::memcpy(to, from.data, from.size_bytes);
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
  if (needed <= slots()) {
    return nullptr;
  }
  EchoConfig larger = given_;
  larger.spare = 0;
  const std::size_t missing = needed - sizes_of(larger).slots;  // what was asked for may be settled higher or lower
  if (missing > SlotPool::kMaxSlots) {
    throw std::length_error("no buffer has slots for so many items");
  }
  larger.spare = static_cast<std::uint32_t>(missing);
  if (const std::size_t least = min_bytes(larger); least > larger.max_bytes) {
    throw std::length_error("the " + std::to_string(items) + " items of the state need max_bytes of " +
                            std::to_string(least) + ", and this buffer has " + std::to_string(larger.max_bytes));
  }
  return std::make_shared<EchoBuffer>(larger);
}

Replay EchoBuffer::begin_at(PlanPosition position) {
  stop();
  owes_ = false;
  take_failure();
  return driver_.begin(std::move(position));
}

void EchoBuffer::resume(const Replay& replay) {
  driver_.resume(replay);
  slot_memory_.drop(replay.free_slots());
}

void EchoBuffer::start() {
  driver_.start();
  slot_memory_.drop_all();  // not before it is known that no reservation is open
}

// ---------------------------------------------------------------- any thread

void EchoBuffer::stop() {
  if (!forked()) {  // in a forked child, a thread that stayed in the parent may hold a lock
    SlotPool::stop();
    driver_.alert();
  }
}

EchoStats EchoBuffer::stats() const {
  EchoStats stats = EchoStage::stats();
  stats.batches = batches_taken_.load_relaxed();
  stats.bytes_gathered = stats.emitted * layout_.row_bytes();
  stats.outstanding_leases = batches_->outstanding();
  stats.batch_blocks = batches_->blocks();
  stats.grown_blocks = stats.batch_blocks - std::min<std::uint64_t>(stats.batch_blocks, blocks_);
  return stats;
}

}  // namespace pyecho
