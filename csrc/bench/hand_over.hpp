// Measures the time of an item from its producer to a consumer that sleeps for it.
#pragma once

#include <cstdint>
#include <vector>

namespace pyecho::bench {

enum class HandOver : unsigned char {
  kCondition,  // the limit: a mutex and a condition variable, nothing else
  kQueue,      // EchoQueue: producer -> consumer
  kBuffer,     // EchoBuffer, batches of one row: producer -> gather worker -> consumer
};

// Hands over `count` items, each `pause_ns` after the last, so that the consumer (and workers) sleep by then. Returns
// the nanoseconds from just before each commit to just after its receipt. Blocks for about count * pause_ns.
[[nodiscard]] std::vector<std::uint64_t> hand_over_ns(HandOver kind, std::uint32_t count, std::uint64_t pause_ns);

}  // namespace pyecho::bench
