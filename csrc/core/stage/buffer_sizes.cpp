#include "core/stage/buffer_sizes.hpp"

#include <limits>
#include <string>

#include "core/memory/machine.hpp"

namespace pyecho {
namespace {

// Threads hand over in bursts, some tens of microseconds apart, because a sleeper needs that long to wake or to get the
// processor. So many bytes of batches are made ahead, and as many bytes of examples taken ahead of them, so that no
// thread runs dry in between.
constexpr std::size_t kAheadBytes = std::size_t{4} << 20;
constexpr std::uint64_t kMaxBlocks = 1U << 30;
constexpr std::uint32_t kMaxThreads = 256;
// At most half of the possible slots are ahead of the pool; the rest are for the pool.
constexpr std::uint32_t kMaxAhead = 1U << 29;

// Throws std::invalid_argument if no sizes can be computed from the configuration.
void check(const EchoConfig& config) {
  if (config.plan.batch_size < 1 || config.plan.capacity < 1 || config.prefetch < 1 || config.slots_ahead < 1) {
    throw std::invalid_argument("batch_size, shuffle_buffer, prefetch and slots_ahead are at least 1");
  }
  if (config.plan.unique_in_batch && config.plan.capacity < config.plan.batch_size) {
    throw std::invalid_argument("unique_in_batch needs a shuffle_buffer of at least batch_size");
  }
  if (config.plan.capacity > SlotRing::kMaxSlots - kMaxAhead) {
    throw std::invalid_argument("shuffle_buffer must stay below 2^29");
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
  if (config.steps > std::numeric_limits<std::uint64_t>::max() / config.plan.batch_size) {
    throw std::invalid_argument("an iteration of so many steps has no end");
  }
}

}  // namespace

BufferSizes sizes_of(const EchoConfig& config) {
  check(config);
  // Slots ahead of the pool: the fresh examples of the batches made ahead, and those that arrive together, so that
  // a source can produce the next ones while the last ones wait to be admitted.
  const std::uint32_t min_uses =
      config.plan.min_uses > 0 ? config.plan.min_uses : EchoFactor(config.plan.factor).min_uses();
  const std::uint64_t fresh_per_batch = (config.plan.batch_size - 1) / min_uses + 1;
  const auto ahead = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(config.slots_ahead + config.prefetch * fresh_per_batch, 2, kMaxAhead));
  // Batches ready for the consumer, and one in each worker. Without workers no batches are made ahead.
  const std::uint32_t depth = config.threads == 0 ? 1 : config.prefetch + config.threads;
  const auto waiting = static_cast<std::uint32_t>(Plan::waiting_slots(config.plan.streams, config.plan.capacity));
  // Returns the most items that have their last use among so many rows: as many as the pool holds, and others that have
  // all their uses there. An adaptive pool lets an item go for each that comes.
  const auto leaving = [&](std::uint64_t rows) {
    return config.plan.adaptive()
               ? rows
               : std::min<std::uint64_t>(rows, config.plan.capacity + waiting + (rows - 1) / min_uses + 1);
  };
  BufferSizes sizes{.config = config,
                    .layout = SlotLayout(config.leaves, config.plan.batch_size, config.with_info, config.shared_slots),
                    .slots = config.plan.capacity + waiting + ahead + config.spare,
                    .ahead = ahead,
                    .depth = depth,
                    .blocks = depth + config.held,
                    .states = leaving((depth + 1) * std::uint64_t{config.plan.batch_size}) +
                              (config.plan.min_uses > 0 ? config.plan.capacity : 0)};
  if (sizes.keeps_items()) {  // slots of the batches made ahead, and at least all that leave the pool in the open one
    const std::uint64_t kept = std::max(leaving(config.plan.batch_size), (depth + 1) * fresh_per_batch);
    sizes.slots += static_cast<std::uint32_t>(std::min<std::uint64_t>(kept, kMaxAhead));
  }
  return sizes;
}

std::size_t min_bytes_of(const EchoConfig& config) {
  BufferSizes sizes = sizes_of(config);
  const auto states = static_cast<std::uint32_t>(std::min<std::uint64_t>(sizes.states, SlotRing::kMaxSlots));
  sizes.slots += std::max(config.spare, states) - config.spare;
  return sizes.bytes();
}

BufferSizes settled(EchoConfig config) {
  const std::size_t least = min_bytes_of(config);
  if (least > config.max_bytes) {
    throw std::length_error("the slots and batches need max_bytes of " + std::to_string(least));
  }
  const BufferSizes asked = sizes_of(config);
  if (asked.bytes() > machine_bytes() && !config.batch_memory) {
    throw std::bad_alloc();  // now, rather than once every page of the machine has been touched
  }
  const std::size_t allowed = least + (config.max_bytes - least) / 2;
  // Raises `count` to as many as kAheadBytes hold, within `most` and `allowed`.
  const auto raise = [&](std::uint32_t& count, std::size_t bytes, std::size_t most) {
    const auto wanted = static_cast<std::uint32_t>(std::min(most, kAheadBytes / std::max<std::size_t>(1, bytes)));
    const std::uint32_t given = count;
    count = std::max(count, wanted);
    while (count > given && min_bytes_of(config) > allowed) {
      count = given + (count - given) / 2;
    }
  };
  const std::size_t variable = asked.layout.variable_bytes();
  raise(config.prefetch, plus(asked.layout.batch_bytes(), times(asked.layout.ragged_bytes(), asked.layout.rows())),
        config.most_ahead);
  raise(config.slots_ahead, asked.layout.slot_bytes() + variable, config.plan.capacity);
  return sizes_of(config);
}

}  // namespace pyecho
