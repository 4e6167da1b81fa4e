// Memory that an EchoBuffer of a configuration needs: numbers of slots and of batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>

#include "core/memory/host_memory.hpp"
#include "core/memory/sizes.hpp"
#include "core/memory/stream_copy.hpp"
#include "core/stage/batch_ring.hpp"
#include "core/stage/echo_config.hpp"
#include "core/stage/gather.hpp"
#include "core/stage/slot_ring.hpp"

namespace pyecho {

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
  // Most that items of variable size need, in slots; counted only against a bound.
  [[nodiscard]] std::size_t variable_bytes() const noexcept {
    return config.max_bytes == kUnlimited ? 0 : times(layout.variable_bytes(), slots);
  }
  [[nodiscard]] std::size_t block_bytes() const noexcept {
    return BatchPool::block_bytes(layout, config.max_bytes != kUnlimited);
  }
  // Returns the bytes that the buffer allocates at first. Throws std::length_error.
  [[nodiscard]] std::size_t bytes() const {
    constexpr std::size_t kMostBytes = std::size_t{1} << 56U;  // no machine has more
    if (plus(times(plus(layout.slot_bytes(), layout.variable_bytes()), slots), times(block_bytes(), blocks)) >
        kMostBytes) {
      throw std::length_error("slots and batches do not fit the address space");
    }
    return HostMemory::rounded_bytes(slots * layout.slot_bytes()) + blocks * block_bytes() + variable_bytes() +
           SlotRing::size_bytes(slots) + Plan::size_bytes(plan_of(config, slots)) +
           Gather::size_bytes(slots, parked()) + BatchRing<Batch>::size_bytes(depth);
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

// Throw std::invalid_argument, std::length_error.
[[nodiscard]] BufferSizes sizes_of(const EchoConfig& config);
// Returns the bytes that a buffer of this configuration needs before any growth, also one that goes on from its states.
[[nodiscard]] std::size_t min_bytes_of(const EchoConfig& config);
// Returns the sizes of a buffer whose `prefetch` and `slots_ahead` are raised if batches and examples are small. Uses at most
// half of the memory that max_bytes leaves over; the other half is for batches that the consumer keeps. Throws also
// std::bad_alloc if the machine has less memory.
[[nodiscard]] BufferSizes settled(EchoConfig config);

}  // namespace pyecho
