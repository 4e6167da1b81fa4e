// Sizes of an EchoBuffer: its slots, its batches, and how many of them are ahead.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "core/stage/echo_buffer.hpp"
#include "core/stage/echo_buffer_sizes.hpp"
#include "core/stage/workers_driver.hpp"

namespace pyecho {
namespace {

// Threads hand over in bursts, some tens of microseconds apart, because a sleeper needs that long to wake or to get the
// processor. So many bytes of batches are made ahead, and as many bytes of examples taken ahead of them, so that no
// thread runs dry in between.
constexpr std::size_t kAheadBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxBatchesAhead = 32;
constexpr std::uint64_t kMaxBlocks = 1U << 30;
// No machine has more.
constexpr double kMaxBytes = 0x1.0p56;
// At most half of the possible slots are ahead of the pool; the rest are for the capacity.
constexpr std::uint32_t kMaxAhead = 1U << 29;

// Throws std::invalid_argument if no sizes can be computed from the configuration.
void check(const EchoBufferConfig& config) {
  if (config.batch_rows < 1 || config.capacity < 1 || config.prefetch < 1 || config.burst < 1) {
    throw std::invalid_argument("batch_rows, capacity, prefetch and burst are at least 1");
  }
  if (config.unique_in_batch && config.capacity < config.batch_rows) {
    throw std::invalid_argument("unique_in_batch needs a capacity of at least batch_rows");
  }
  if (config.capacity > SlotPool::kMaxSlots - kMaxAhead) {
    throw std::invalid_argument("capacity must stay below 2^29");
  }
  if (std::uint64_t{config.prefetch} + config.threads + config.held > kMaxBlocks) {
    throw std::invalid_argument("prefetch, threads and held are less than 2^30 together");
  }
  if (config.steps > std::numeric_limits<std::uint64_t>::max() / config.batch_rows) {
    throw std::invalid_argument("an iteration of so many steps has no end");
  }
}

}  // namespace

EchoBuffer::Sizes EchoBuffer::sizes_of(const EchoBufferConfig& config) {
  check(config);
  // Slots ahead of the pool: the fresh examples of the batches made ahead, and one burst, so that a source can produce
  // the next burst while the last one waits to be admitted.
  const std::uint32_t min_uses = EchoFactor(config.factor).min_uses();
  const std::uint64_t fresh_per_batch = (config.batch_rows - 1) / min_uses + 1;
  const auto ahead = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(config.burst + config.prefetch * fresh_per_batch, 2, kMaxAhead));
  // Batches ready for the consumer, and one in each worker. Without workers no batches are made ahead.
  const std::uint32_t depth = config.threads == 0 ? 1 : config.prefetch + config.threads;
  return {.slots = config.capacity + ahead, .ahead = ahead, .depth = depth, .blocks = depth + config.held};
}

PlanConfig EchoBuffer::plan_of(const EchoBufferConfig& config) {
  return {.capacity = config.capacity,
          .slots = sizes_of(config).slots,
          .factor = config.factor,
          .seed = config.seed,
          .unique_in_batch = config.unique_in_batch,
          .iteration_uses = config.steps * config.batch_rows};
}

std::size_t EchoBuffer::min_bytes(const EchoBufferConfig& config) {
  const Sizes sizes = sizes_of(config);  // first, because it checks the configuration
  const SlotLayout layout(config.leaf_bytes, config.batch_rows, config.with_info);
  const double estimate =
      static_cast<double>(sizes.slots) * static_cast<double>(layout.slot_bytes()) +
      static_cast<double>(sizes.blocks) *
          static_cast<double>(BatchPool::block_bytes(layout) + SlotReclaimer::size_bytes(1, config.batch_rows));
  if (estimate > kMaxBytes) {
    throw std::length_error("slots and batches do not fit the address space");
  }
  const std::size_t bookkeeping = BatchPlan::size_bytes(plan_of(config)) + SlotPool::size_bytes(sizes.slots) +
                                  SlotReclaimer::size_bytes(sizes.depth, config.batch_rows) +
                                  WorkersDriver::size_bytes(sizes.depth);
  return HostMemory::rounded_bytes(sizes.slots * layout.slot_bytes()) + sizes.blocks * BatchPool::block_bytes(layout) +
         bookkeeping;
}

// Raises `prefetch` and `burst` if batches and examples are small. Uses at most half of the memory that max_bytes leaves
// over; the other half is for batches that the consumer keeps.
EchoBufferConfig EchoBuffer::settled(EchoBufferConfig config) {
  const std::size_t least = min_bytes(config);
  if (least > config.max_bytes) {
    throw std::length_error("max_bytes is less than the slots and batches need");
  }
  const std::size_t allowed = least + (config.max_bytes - least) / 2;
  const SlotLayout layout(config.leaf_bytes, config.batch_rows, config.with_info);
  // Raises `count` to as many as kAheadBytes hold, within `most` and `allowed`.
  const auto raise = [&](std::uint32_t& count, std::size_t bytes, std::size_t most) {
    const auto wanted = static_cast<std::uint32_t>(std::min(most, kAheadBytes / std::max<std::size_t>(1, bytes)));
    const std::uint32_t asked = count;
    count = std::max(count, wanted);
    while (count > asked && min_bytes(config) > allowed) {
      count = asked + (count - asked) / 2;
    }
  };
  raise(config.prefetch, layout.batch_bytes(), kMaxBatchesAhead);
  raise(config.burst, layout.slot_bytes(), config.capacity);
  return config;
}

}  // namespace pyecho
