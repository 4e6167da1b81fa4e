#include "core/stage/echo_buffer.hpp"

#include <algorithm>

#include "core/stage/consumer_driver.hpp"
#include "core/stage/echo_buffer_sizes.hpp"
#include "core/stage/workers_driver.hpp"

namespace pyecho {
namespace {

// A worker is woken once this many bytes are committed, so that a batch of large examples is not copied in one late
// burst.
constexpr std::size_t kWakeBytes = std::size_t{1} << 20;
// A waiting consumer makes batches itself if examples have at least this many bytes. Each change of the planning thread
// moves the plan between the processors' caches. For smaller examples that costs more than the second copier gains.
constexpr std::size_t kHelpBytes = 512;
// A producer without a slot is woken once 1 / kAnnounceParts of the slots ahead are free: early enough to run before the
// planner has used up the rest, but not for every slot, because each wake-up costs the waking thread time.
constexpr std::uint32_t kAnnounceParts = 4;

std::size_t longest_leaf(const EchoBufferConfig& config) {
  return config.leaf_bytes.empty() ? 0 : *std::ranges::max_element(config.leaf_bytes);
}

}  // namespace

EchoBuffer::EchoBuffer(const EchoBufferConfig& config) : EchoBuffer(settled(config), sizes_of(settled(config))) {}

EchoBuffer::EchoBuffer(const EchoBufferConfig& config, const Sizes& sizes)
    : config_(config),
      layout_(config.leaf_bytes, config.batch_rows, config.with_info),
      slot_memory_(sizes.slots * layout_.slot_bytes()),
      stream_slots_(worth_streaming(slot_memory_.size_bytes(), longest_leaf(config))),
      pool_(sizes.slots, std::max(1U, sizes.ahead / kAnnounceParts)),
      reclaimer_(pool_, sizes.depth, config.batch_rows),
      blocks_(sizes.blocks),
      batches_(std::make_shared<BatchPool>(
          layout_, blocks_,
          config.max_bytes == kUnlimited
              ? kUnlimited
              : config.max_bytes - (min_bytes(config) - blocks_ * BatchPool::block_bytes(layout_)),
          config.batch_memory)),
      builder_(layout_, slot_memory_.data(), reclaimer_,
               worth_streaming(blocks_ * layout_.batch_bytes(), longest_leaf(config))),
      executor_(pool_, *batches_, reclaimer_, builder_, plan_of(config), config.batch_rows) {
  executor_.begin(config.epoch, config.items);
  if (config.threads == 0) {
    driver_ = std::make_unique<ConsumerDriver>(executor_, pool_, *batches_);
  } else {
    driver_ = std::make_unique<WorkersDriver>(executor_, pool_, *batches_, config.threads, sizes.depth,
                                              layout_.example_bytes() >= kHelpBytes,
                                              std::max<std::size_t>(1, kWakeBytes / layout_.slot_bytes()));
  }
  driver_->resume();
}

EchoBuffer::~EchoBuffer() {
  if (fork_guard_.forked()) {
    driver_->abandon_threads();
    return;
  }
  stop();
}

// ---------------------------------------------------------------- producers

Outcome EchoBuffer::reserve(Reservation& reservation, Deadline deadline) {
  return fork_guard_.forked() ? Outcome::kForked : pool_.reserve(reservation, deadline);
}

Outcome EchoBuffer::try_reserve(std::span<Reservation> wanted, std::uint32_t& count) {
  count = 0;
  return fork_guard_.forked() ? Outcome::kForked : pool_.try_reserve(wanted, count);
}

void EchoBuffer::commit(std::span<const Reservation> reservations) {
  if (!fork_guard_.forked()) {
    fence_slots();
    pool_.commit(reservations);
  }
}

void EchoBuffer::abort(Reservation reservation) {
  if (!fork_guard_.forked()) {
    fence_slots();  // because the next producer of the slot overwrites it
    pool_.abort(reservation);
  }
}

void EchoBuffer::end_pass(Reservation reservation) {
  if (!fork_guard_.forked()) {
    pool_.end_pass(reservation);
  }
}

void EchoBuffer::close() {
  if (!fork_guard_.forked()) {
    pool_.close();
  }
}

// ---------------------------------------------------------------- consumer

// Turns the driver's batch into a lease, and counts it.
Outcome EchoBuffer::hand_out(Outcome outcome, Batch* batch, Lease& lease) {
  if (outcome != Outcome::kOk) {
    return outcome;
  }
  lease = Lease(batches_, batch);
  if (!config_.drop_last || batch->rows == config_.batch_rows) {
    emitted_.store_relaxed(emitted_.load_relaxed() + batch->rows);
    batches_taken_.store_relaxed(batches_taken_.load_relaxed() + 1);
    clock_.leave();
  }
  return outcome;
}

Outcome EchoBuffer::try_acquire(Lease& lease) {
  if (fork_guard_.forked()) {
    return Outcome::kForked;
  }
  if (pool_.stopped()) {
    return Outcome::kClosed;
  }
  clock_.enter();
  Batch* batch = nullptr;
  const Outcome outcome = driver_->try_acquire(batch);
  return hand_out(outcome, batch, lease);
}

Outcome EchoBuffer::acquire(Lease& lease, Deadline deadline) {
  if (fork_guard_.forked()) {
    return Outcome::kForked;
  }
  clock_.enter();
  Batch* batch = nullptr;
  const Outcome outcome = driver_->acquire(batch, deadline);
  return hand_out(outcome, batch, lease);
}

Outcome EchoBuffer::begin(std::uint64_t epoch, std::uint64_t items) {
  if (fork_guard_.forked()) {
    return Outcome::kForked;
  }
  stop();
  driver_->park();
  executor_.begin(epoch, items);
  driver_->resume();
  return Outcome::kOk;
}

// ---------------------------------------------------------------- any thread

void EchoBuffer::stop() {
  if (!fork_guard_.forked()) {  // in a forked child, a thread that stayed in the parent may hold a lock
    pool_.stop();
    driver_->alert();
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
          .resident = executor_.resident(),
          .outstanding_leases = batches_->outstanding(),
          .batch_blocks = blocks,
          .grown_blocks = blocks - std::min<std::uint64_t>(blocks, blocks_)};
}

}  // namespace pyecho
