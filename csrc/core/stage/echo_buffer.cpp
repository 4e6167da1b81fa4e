#include "core/stage/echo_buffer.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace pyecho {
namespace {

// Copying starts once this much has arrived, so that a batch of large examples is not copied in one late burst.
constexpr std::size_t kWakeBytes = std::size_t{1} << 20;
// While the plan lacks an item, rows are copied in pieces of this size between looks for it.
constexpr std::size_t kCopyPieceBytes = std::size_t{1} << 18;
// A consumer that waits makes batches itself where this much is copied for each use. Planning goes from one processor's
// cache to the other's with every change of hands, and with smaller examples that costs more than the second copier gains.
constexpr std::size_t kHelpBytes = 512;
// A producer without a slot is woken for this part of the slots ahead: it has to get the processor before the rest runs
// out, and every wake-up costs the one who wakes.
constexpr std::uint32_t kWakeParts = 4;

// Planning takes microseconds, unless the source is slow: looks for the lock that long before giving up.
bool lock_soon(std::unique_lock<std::mutex>& lock) {
  static const int looks = std::thread::hardware_concurrency() < 2 ? 1 : 200;
  for (int look = 0; look < looks; ++look) {
    if (lock.try_lock()) {
      return true;
    }
    relax_processor();
  }
  return false;
}

std::size_t longest_leaf(const EchoBufferConfig& config) {
  return config.leaf_bytes.empty() ? 0 : *std::ranges::max_element(config.leaf_bytes);
}

void lock(std::unique_lock<std::mutex>& lock) {
  if (!lock_soon(lock)) {
    lock.lock();
  }
}

}  // namespace

EchoBuffer::EchoBuffer(const EchoBufferConfig& config)
    : config_(settled(config)),
      layout_(config.leaf_bytes, config.batch_rows, config.with_info),
      depth_(depth_for(config_)),
      slot_memory_(slots_for(config_) * layout_.slot_bytes(), {.threads = std::thread::hardware_concurrency()}),
      stream_slots_(worth_streaming(slot_memory_.size_bytes(), longest_leaf(config))),
      pool_(slots_for(config_), std::max(1U, ahead_for(config_) / kWakeParts)),
      spent_(pool_, depth_, config.batch_rows),
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
      builders_(config.threads + std::size_t{2},
                BatchBuilder(layout_, slot_memory_.data(), spent_,
                             worth_streaming(blocks_for(config_) * layout_.batch_bytes(), longest_leaf(config)))) {
  open_ = &builders_[config.threads];
  helper_ = &builders_[config.threads + std::size_t{1}];
  try {
    for (std::uint32_t worker = 0; worker < config.threads; ++worker) {
      workers_.emplace_back([this, worker] { work(&builders_[worker]); });
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

// ---------------------------------------------------------------- making batches: workers, and a consumer that waits

// What is handed over in a turn are pointers: a forked child may find them half exchanged, and still destroys each
// BatchBuilder once.
void EchoBuffer::work(BatchBuilder* gatherer) {
  for (;;) {
    std::unique_lock line(line_, std::defer_lock);
    lock(line);
    std::unique_lock turn(turn_, std::defer_lock);
    lock(turn);
    switch (plan(true)) {
      case Outcome::kOk:
        std::swap(gatherer, open_);
        turn.unlock();
        line.unlock();
        deliver(*gatherer);
        break;
      case Outcome::kFull: {  // the turn is free meanwhile, but one worker is enough to wake
        const std::uint64_t target = next_batch_ - depth_ + 1;
        turn.unlock();
        static_cast<void>(
            consumed_.await(target, kNever, WaitStrategy::spin_then_sleep(), [this] { return pool_.stopped(); }));
        break;
      }
      default:
        return;
    }
  }
}

// Plans the open batch to its end. Needs the turn. kOk: it is ready to be copied; kFull: the consumer has to take another
// one first; kEnd: there is none any more, or stop() was called; kEmpty: it takes a wait, and none is allowed.
Outcome EchoBuffer::plan(bool may_wait) {
  while (!ended_ && !pool_.stopped()) {
    if (!begun_) {
      if (next_batch_ >= consumed_.read() + depth_) {
        return Outcome::kFull;
      }
      planner_.begin_batch();
      begun_ = true;
    }
    // The end of the input is found before a block is asked for.
    if (const Outcome outcome = admit(may_wait); outcome != Outcome::kOk) {
      return outcome;
    }
    if (open_->batch() == nullptr) {
      if (planner_.exhausted()) {
        finish(next_batch_);
        break;
      }
      if (Batch* const batch = obtain(may_wait); batch != nullptr) {
        open_->begin(next_batch_, *batch);
      } else {
        return Outcome::kEmpty;
      }
    }
    if (const Outcome outcome = draw_rows(may_wait); outcome != Outcome::kOk) {
      return outcome;
    }
    begun_ = false;
    resident_.store_relaxed(planner_.resident());
    const bool whole = open_->planned() == config_.batch_rows;
    const bool handed_out = whole || (open_->planned() > 0 && !config_.drop_last);
    next_batch_ += handed_out ? 1 : 0;
    if (planner_.exhausted()) {
      finish(next_batch_);
    }
    if (handed_out) {
      return Outcome::kOk;
    }
    batches_->give_back(open_->drop(), false);
  }
  return Outcome::kEnd;
}

// Draws until the batch is complete or nothing is left that it may take.
Outcome EchoBuffer::draw_rows(bool may_wait) {
  while (open_->planned() < config_.batch_rows) {
    if (const Outcome outcome = admit(may_wait); outcome != Outcome::kOk) {
      return outcome;
    }
    const std::uint32_t drawn = planner_.draw(open_->rest());
    if (drawn == 0) {
      break;
    }
    open_->add(drawn);
  }
  return Outcome::kOk;
}

// A block to write to; null after stop(), or if there is none and no wait is allowed.
Batch* EchoBuffer::obtain(bool may_wait) {
  while (!pool_.stopped()) {
    const std::uint64_t seen = batches_->returns();
    Batch* const batch = batches_->obtain();
    if (batch != nullptr || !may_wait) {
      return batch;
    }
    ready_count_.alert();  // the consumer may be asleep for a batch that cannot be made
    batches_->await_return(seen, [this] { return pool_.stopped(); });
  }
  return nullptr;
}

// Fills the planner's pool as far as it must be for the next draw: kOk, kEnd after stop(), kEmpty.
Outcome EchoBuffer::admit(bool may_wait) {
  while (planner_.has_room()) {
    std::uint32_t slot = 0;
    const Outcome outcome = pool_.try_take(slot);
    if (outcome == Outcome::kOk) {
      planner_.admit(slot);
    } else if (outcome == Outcome::kEnd) {
      planner_.end_of_source();
    } else if (pool_.stopped()) {
      return Outcome::kEnd;
    } else if (!open_->copy(kCopyPieceBytes)) {  // the source is slower than the plan: use the time to copy
      resident_.store_relaxed(planner_.resident());
      if (!may_wait) {
        return Outcome::kEmpty;
      }
      const std::uint64_t needed = planner_.min_admissions(config_.batch_rows - open_->planned());
      static_cast<void>(pool_.await_items(std::min(needed, wake_items_), kNever));
    }
  }
  return Outcome::kOk;
}

// Copies what is left of a planned batch and hands it over.
void EchoBuffer::deliver(BatchBuilder& gatherer) {
  const std::uint64_t number = gatherer.number();
  const std::uint64_t cell = number % in_flight_.size();
  in_flight_[cell] = gatherer.end();
  ready_.publish(number, static_cast<std::uint32_t>(cell));
  ready_count_.advance();
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

// Makes a batch with the consumer's own hands, which would else be idle; false if there is nothing to do at once.
bool EchoBuffer::help() {
  if (layout_.example_bytes() < kHelpBytes) {
    return false;
  }
  std::unique_lock turn(turn_, std::defer_lock);
  if (!lock_soon(turn) || plan(false) != Outcome::kOk) {
    return false;
  }
  std::swap(helper_, open_);
  turn.unlock();
  deliver(*helper_);
  helped_.store_relaxed(helped_.load_relaxed() + 1);
  return true;
}

Outcome EchoBuffer::acquire(Lease& lease, Deadline deadline) {
  for (;;) {
    // Read before the attempt: whatever is published after it ends the wait below.
    const std::uint64_t seen = ready_count_.read();
    if (const Outcome outcome = try_acquire(lease); outcome != Outcome::kEmpty) {
      return outcome;
    }
    if (Clock::now() < deadline && help()) {
      continue;
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
          .helped = helped_.load_relaxed(),
          .grown_blocks = blocks - std::min<std::uint64_t>(blocks, blocks_for(config_))};
}

}  // namespace pyecho
