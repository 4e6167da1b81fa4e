// Measurements of `pyecho bench`: the core beside its limits.
//
// GatherRace compares example echoing with bare memcpy of the same bytes.
// Both sides copy each fresh row once into the pool and each of its uses once out of it, in random order, from and to
// the same kind of memory (page-aligned, huge pages where granted, touched beforehand). The limit is a plain loop per
// thread over slot numbers drawn beforehand, without hand-over or order among threads. pyecho gets its rows from one
// producer thread and gathers with the given number of workers. Its consumer drops every batch at once and makes
// batches while it waits. So two limits are of interest: as many threads as workers, and one thread on every core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/memory/host_memory.hpp"

namespace pyecho::bench {

struct Workload {
  std::size_t row_bytes;         // >= 1
  std::uint32_t batch_size;      // >= 1
  std::uint32_t shuffle_buffer;  // >= 1: rows resident for shuffling
  std::uint32_t factor;          // >= 1
  std::uint64_t fresh;           // rows taken from the source
  unsigned threads;              // gather workers; 0: the consumer makes the batches
};

class GatherRace {
 public:
  // Allocates everything except pyecho's own memory. Throws std::bad_alloc.
  explicit GatherRace(const Workload& workload);

  // Returns the seconds of one run, without the allocation of memory. Both functions block; one thread at a time.
  // `threads` >= 1. Throws std::bad_alloc.
  [[nodiscard]] double memcpy_seconds(unsigned threads);
  // Throws the exceptions of EchoBuffer's constructor, and std::logic_error if not every use arrives.
  [[nodiscard]] double echo_seconds();

 private:
  [[nodiscard]] const std::byte* source_row(std::uint64_t index) const noexcept;
  void copy_share(unsigned thread, unsigned threads) noexcept;
  [[nodiscard]] static std::size_t blocks_for(unsigned threads) noexcept;
  [[nodiscard]] std::size_t batch_bytes() const noexcept;

  Workload workload_;
  HostMemory source_;                 // rows, read in order and repeatedly; larger than a cache
  HostMemory pool_;                   // bare memcpy's slots
  HostMemory batches_;                // bare memcpy's batches
  std::vector<std::uint32_t> order_;  // slots in random order
};

// Hands over `count` items, each `pause_ns` after the last, so that the consumer (and workers) sleep by then. `stage`:
// - "condition", the limit: a mutex and a condition variable, nothing else
// - "queue": EchoQueue, producer -> consumer
// - "buffer": EchoBuffer, batches of one row, made by the consumer
// Returns the nanoseconds from just before each commit to just after its receipt. Blocks for about count * pause_ns.
// Throws std::invalid_argument for another stage.
[[nodiscard]] std::vector<std::uint64_t> hand_over_ns(const std::string& stage, std::uint32_t count,
                                                      std::uint64_t pause_ns);

}  // namespace pyecho::bench
