// How much of everything an EchoBuffer has: slots, batches, and how far ahead they reach.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/stage/echo_buffer.hpp"

namespace pyecho {
namespace {

// Threads hand over in bursts, some tens of microseconds apart: a sleeper wakes, or gets the processor, that late. Batches
// are made ahead, and examples taken ahead of them, for as long as it takes to copy this much, so that nobody runs dry in
// between, but not ever more of them.
constexpr std::size_t kAheadBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxBatchesAhead = 32;
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

// Refuses what cannot be, and looks further ahead where examples and batches are small. Of what max_bytes leaves over at
// most half goes into that: the other half is for batches that the consumer keeps.
EchoBufferConfig EchoBuffer::settled(EchoBufferConfig config) {
  const std::size_t least = min_bytes(config);
  if (least > config.max_bytes) {
    throw std::length_error("max_bytes is less than the slots and batches need");
  }
  const std::size_t allowed = least + (config.max_bytes - least) / 2;
  const SlotLayout layout(config.leaf_bytes, config.batch_rows, config.with_info);
  // Raises `count` as far as kAheadBytes hold, and as far as is allowed.
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
