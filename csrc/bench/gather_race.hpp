// Example echoing against its limit: bare memcpy of the same bytes.
//
// Both sides copy each fresh row once into the pool and each of its uses once out of it, in random order, from and to
// the same kind of memory (page-aligned, huge pages where granted, touched beforehand). The limit is a plain loop per
// thread over slot numbers that were drawn beforehand: no hand-over, no order among threads. pyecho gets its rows from
// one producer thread, gathers with the given number of workers, and its consumer drops every batch at once; while it
// waits it makes batches, too. So two limits are of interest: as many threads as workers, and one on every core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/memory/host_memory.hpp"

namespace pyecho::bench {

struct Workload {
  std::size_t row_bytes;     // >= 1
  std::uint32_t batch_rows;  // >= 1
  std::uint32_t capacity;    // >= 1: rows resident for shuffling
  std::uint32_t factor;      // >= 1
  std::uint64_t fresh;       // rows taken from the source
  unsigned threads;          // >= 1: gather workers
};

class GatherRace {
 public:
  // Allocates all but pyecho's own memory. Throws std::bad_alloc.
  explicit GatherRace(const Workload& workload);

  // Seconds of one run each, without the allocation of memory. Both block; one thread at a time.
  // `threads` >= 1. Throws std::bad_alloc.
  [[nodiscard]] double memcpy_seconds(unsigned threads);
  // Throws what EchoBuffer's constructor throws, and std::logic_error if not every use arrives.
  [[nodiscard]] double echo_seconds();

 private:
  [[nodiscard]] const std::byte* source_row(std::uint64_t index) const noexcept;
  void copy_share(unsigned thread, unsigned threads) noexcept;
  [[nodiscard]] static std::size_t blocks_for(unsigned threads) noexcept;
  [[nodiscard]] std::size_t batch_bytes() const noexcept;

  Workload workload_;
  HostMemory source_;                 // rows that are read in order and over again, more than a cache holds
  HostMemory pool_;                   // bare memcpy's slots
  HostMemory batches_;                // bare memcpy's batches
  std::vector<std::uint32_t> order_;  // slots in random order
};

}  // namespace pyecho::bench
