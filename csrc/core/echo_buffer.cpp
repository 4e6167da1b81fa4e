#include "core/echo_buffer.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>
#include <utility>

namespace pyecho {
namespace {

// Copying starts once this much has arrived, so that a batch of large examples is not copied in one late burst.
constexpr std::size_t kWakeBytes = std::size_t{1} << 20;
// While the plan lacks an item, rows are copied in pieces of this size between looks for it.
constexpr std::size_t kCopyPieceBytes = std::size_t{1} << 18;
// Threads hand over in bursts, some tens of microseconds apart: a sleeper wakes, or gets the processor, that late. Batches
// are made ahead for as long as it takes to copy this much, so that nobody runs dry in between, but not ever more of them.
constexpr std::size_t kAheadBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxSmallBatchesAhead = 8;
// No machine has more.
constexpr double kMaxBytes = 0x1.0p56;
// Slot numbers have 31 bits; capacity may take half of them.
constexpr double kMaxAhead = 1 << 30;

}  // namespace

// Slots ahead of the pool: the fresh examples of as many batches as are made ahead, and one burst, so that a source can
// make the next one while the last one waits to be admitted.
std::uint32_t EchoBuffer::ahead_for(const EchoBufferConfig& config) {
  const double fresh_per_batch = std::ceil(config.batch_rows / std::floor(config.factor));
  return static_cast<std::uint32_t>(std::clamp(config.burst + config.prefetch * fresh_per_batch, 2.0, kMaxAhead));
}

std::uint32_t EchoBuffer::slots_for(const EchoBufferConfig& config) { return config.capacity + ahead_for(config); }

// Batches ready for the consumer, and one in the hands of each worker.
std::uint32_t EchoBuffer::depth_for(const EchoBufferConfig& config) { return config.prefetch + config.threads; }

std::uint32_t EchoBuffer::blocks_for(const EchoBufferConfig& config) { return depth_for(config) + config.held; }

std::size_t EchoBuffer::min_bytes(const EchoBufferConfig& config) {
  const SlotLayout layout(config.leaf_bytes, config.batch_rows, config.with_info);
  const double estimate = static_cast<double>(slots_for(config)) * static_cast<double>(layout.slot_bytes()) +
                          static_cast<double>(blocks_for(config)) * static_cast<double>(layout.batch_bytes());
  if (estimate > kMaxBytes) {
    throw std::length_error("slots and batches do not fit the address space");
  }
  return HostMemory::rounded_bytes(slots_for(config) * layout.slot_bytes()) +
         blocks_for(config) * HostMemory::rounded_bytes(layout.batch_bytes());
}

// Refuses what cannot be, and raises prefetch for small batches. Of what max_bytes leaves over at most half goes into it:
// the other half is for batches that the consumer keeps.
EchoBufferConfig EchoBuffer::settled(EchoBufferConfig config) {
  const std::size_t least = min_bytes(config);
  if (least > config.max_bytes) {
    throw std::length_error("max_bytes is less than the slots and batches need");
  }
  const std::size_t batch_bytes = SlotLayout(config.leaf_bytes, config.batch_rows, config.with_info).batch_bytes();
  const std::size_t wanted = std::min(kMaxSmallBatchesAhead, kAheadBytes / std::max<std::size_t>(1, batch_bytes));
  while (config.prefetch < wanted) {
    ++config.prefetch;
    if (min_bytes(config) - least > (config.max_bytes - least) / 2) {
      --config.prefetch;
      break;
    }
  }
  return config;
}

EchoBuffer::EchoBuffer(const EchoBufferConfig& config)
    : config_(settled(config)),
      layout_(config.leaf_bytes, config.batch_rows, config.with_info),
      depth_(depth_for(config_)),
      slot_memory_(slots_for(config_) * layout_.slot_bytes(), {.threads = std::thread::hardware_concurrency()}),
      pool_(slots_for(config_), ahead_for(config_) / 2),
      uses_(slots_for(config_), config.threads),
      batches_(std::make_shared<BatchPool>(
          layout_, blocks_for(config_),
          config.max_bytes == kUnlimited ? kUnlimited : config.max_bytes - slot_memory_.size_bytes(),
          config.batch_pages)),
      planner_({.capacity = config.capacity,
                .slots = slots_for(config_),
                .factor = config.factor,
                .seed = config.seed,
                .epoch = config.epoch,
                .unique_in_batch = config.unique_in_batch}),
      wake_items_(std::max<std::size_t>(1, kWakeBytes / layout_.slot_bytes())),
      ready_(depth_),
      in_flight_(ready_.capacity()),
      gatherers_(config.threads, Gatherer(layout_, slot_memory_.data(), uses_, pool_)) {
  try {
    for (Gatherer& gatherer : gatherers_) {
      workers_.emplace_back([this, &gatherer] { work(gatherer); });
    }
  } catch (...) {
    stop();
    for (std::thread& worker : workers_) {
      worker.join();
    }
    throw;
  }
}

EchoBuffer::~EchoBuffer() {
  if (fork_guard_.forked()) {
    // The workers stayed in the parent process. Their handles may by now name threads that were made here, so they are
    // neither joined nor detached but left alone.
    static_cast<void>(new (std::nothrow) std::vector<std::thread>(std::move(workers_)));
    return;
  }
  stop();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

Outcome EchoBuffer::reserve(Reservation& reservation, Deadline deadline) {
  return fork_guard_.forked() ? Outcome::kForked : pool_.reserve(reservation, deadline);
}

Outcome EchoBuffer::try_reserve(Reservation& reservation) {
  return fork_guard_.forked() ? Outcome::kForked : pool_.try_reserve(reservation);
}

void EchoBuffer::stop() {
  if (fork_guard_.forked()) {
    return;  // a lock may be held by a thread that stayed in the parent
  }
  pool_.stop();
  ready_count_.alert();
  consumed_.alert();
  batches_->alert();
}

// ---------------------------------------------------------------- gather workers

void EchoBuffer::work(Gatherer& gatherer) {
  for (;;) {
    Batch* batch = nullptr;
    std::uint64_t number = 0;
    {
      const std::scoped_lock turn(turn_);
      gatherer.begin();
      if (!claim(gatherer, batch)) {
        return;
      }
      gatherer.into(*batch);
      if (!fill(gatherer)) {
        batches_->give_back(batch, false);
        continue;
      }
      number = next_batch_++;
    }
    gatherer.copy(kUnlimited);
    const std::uint64_t cell = number % in_flight_.size();
    in_flight_[cell] = batch;
    ready_.publish(number, static_cast<std::uint32_t>(cell));
    ready_count_.advance();
  }
}

// Waits until a batch can be begun: the consumer is near enough, the planner has something to draw, and there is a block
// to write to, in this order, so that the end of the input is found without a block. False at the end and after stop().
bool EchoBuffer::claim(Gatherer& gatherer, Batch*& batch) {
  const auto stopped = [this] { return pool_.stopped(); };
  if (ended_) {
    return false;
  }
  if (next_batch_ >= depth_) {
    static_cast<void>(consumed_.await(next_batch_ - depth_ + 1, kNever, WaitStrategy::spin_then_sleep(), stopped));
  }
  planner_.begin_batch();
  if (!admit(gatherer)) {
    return false;
  }
  if (planner_.exhausted()) {
    finish(next_batch_);
    return false;
  }
  while (!stopped()) {
    const std::uint64_t seen = batches_->returns();
    batch = batches_->obtain();
    if (batch != nullptr) {
      return true;
    }
    ready_count_.alert();  // the consumer may be asleep for a batch that cannot be made
    batches_->await_return(seen, stopped);
  }
  return false;
}

// Plans one batch; false if it is not to be handed out (it is empty or dropped, and the input has ended).
bool EchoBuffer::fill(Gatherer& gatherer) {
  while (gatherer.planned() < config_.batch_rows && admit(gatherer) && planner_.draw(gatherer.next())) {
    gatherer.add();
  }
  resident_.store_relaxed(planner_.resident());
  const bool whole = gatherer.planned() == config_.batch_rows;
  const bool handed_out = whole || (gatherer.planned() > 0 && !config_.drop_last);
  if (planner_.exhausted()) {
    finish(next_batch_ + (handed_out ? 1 : 0));
  }
  return handed_out && !pool_.stopped();
}

// Fills the planner's pool as far as it must be for the next draw, waiting for items; false after stop().
bool EchoBuffer::admit(Gatherer& gatherer) {
  while (planner_.has_room()) {
    std::uint32_t slot = 0;
    const Outcome outcome = pool_.try_take(slot);
    if (outcome == Outcome::kOk) {
      uses_.expect(slot, planner_.admit(slot));
    } else if (outcome == Outcome::kEnd) {
      planner_.end_of_source();
    } else if (pool_.stopped()) {
      return false;
    } else {
      await_item(gatherer);
    }
  }
  return true;
}

// The source is slower than the plan: use the time to copy, and when nothing is left to copy, sleep until enough has
// come to go on with.
void EchoBuffer::await_item(Gatherer& gatherer) {
  if (gatherer.copy(kCopyPieceBytes)) {
    return;
  }
  resident_.store_relaxed(planner_.resident());
  const std::uint64_t needed = planner_.min_admissions(config_.batch_rows - gatherer.planned());
  static_cast<void>(pool_.await_items(std::min(needed, wake_items_), kNever));
}

// There will be `batches` batches and no more.
void EchoBuffer::finish(std::uint64_t batches) {
  ended_ = true;
  end_batch_.store_release(batches);  // [Z1] pairs with [Z2]
  ready_count_.alert();
}

// ---------------------------------------------------------------- consumer

Outcome EchoBuffer::try_acquire(Lease& lease) {
  if (fork_guard_.forked()) {
    return Outcome::kForked;
  }
  if (pool_.stopped()) {
    return Outcome::kClosed;
  }
  clock_.enter();
  std::uint32_t cell = 0;
  if (ready_.try_take(cell) == Outcome::kOk) {
    lease = Lease(batches_, in_flight_[cell]);
    consumed_.advance();
    emitted_.store_relaxed(emitted_.load_relaxed() + lease.rows());
    batches_taken_.store_relaxed(ready_.taken());
    clock_.leave();
    return Outcome::kOk;
  }
  if (ready_.taken() == end_batch_.load_acquire()) {  // [Z2] pairs with [Z1]
    return Outcome::kEnd;
  }
  return batches_->exhausted() ? Outcome::kExhausted : Outcome::kEmpty;
}

Outcome EchoBuffer::acquire(Lease& lease, Deadline deadline) {
  for (;;) {
    // Read before the attempt: whatever is published after it ends the wait below.
    const std::uint64_t seen = ready_count_.read();
    if (const Outcome outcome = try_acquire(lease); outcome != Outcome::kEmpty) {
      return outcome;
    }
    const std::uint64_t taken = ready_.taken();
    const Outcome outcome = ready_count_.await(
        std::max(seen, taken) + 1, deadline, WaitStrategy::spin_then_sleep(),
        [&] { return pool_.stopped() || batches_->exhausted() || taken == end_batch_.load_acquire(); });
    if (outcome == Outcome::kTimeout) {
      const Outcome last = try_acquire(lease);
      return last == Outcome::kEmpty ? Outcome::kTimeout : last;
    }
  }
}

EchoBufferStats EchoBuffer::stats() const {
  const std::uint64_t emitted = emitted_.load_relaxed();
  const std::uint64_t blocks = batches_->blocks();
  return {.fresh = pool_.committed(),
          .emitted = emitted,
          .batches = batches_taken_.load_relaxed(),
          .bytes_gathered = emitted * layout_.example_bytes(),
          .consumer_wait_ns = clock_.wait_ns(),
          .downstream_ns = clock_.downstream_ns(),
          .resident = resident_.load_relaxed(),
          .outstanding_leases = batches_->outstanding(),
          .batch_blocks = blocks,
          .grown_blocks = blocks - std::min<std::uint64_t>(blocks, blocks_for(config_))};
}

}  // namespace pyecho
