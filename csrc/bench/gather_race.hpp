// Example echoing against its limit: bare memcpy of the same bytes with the same number of threads.
//
// Both sides copy each fresh row once into the pool and each of its uses once out of it, in random order, from and to
// the same kind of memory (page-aligned, huge pages where granted, touched beforehand). The limit is a plain loop per
// thread over slot numbers that were drawn beforehand: no hand-over, no order among threads. pyecho gets its rows from
// one producer thread, gathers with the given number of workers, and its consumer drops every batch at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/host_memory.hpp"

namespace pyecho::bench {

struct Workload {
  std::size_t row_bytes;     // >= 1
  std::uint32_t batch_rows;  // >= 1
  std::uint32_t capacity;    // >= 1: rows resident for shuffling
  std::uint32_t factor;      // >= 1
  std::uint64_t fresh;       // rows taken from the source
  unsigned threads;          // >= 1: gather workers, and threads of bare memcpy
};

class GatherRace {
 public:
  // Allocates all but pyecho's own memory. Throws std::bad_alloc.
  explicit GatherRace(const Workload& workload);

  // Seconds of one run each, without the allocation of memory. Both block; one thread at a time.
  [[nodiscard]] double memcpy_seconds();
  // Throws what EchoBuffer's constructor throws, and std::logic_error if not every use arrives.
  [[nodiscard]] double echo_seconds();

 private:
  [[nodiscard]] const std::byte* source_row(std::uint64_t index) const noexcept;
  void copy_share(unsigned thread) noexcept;

  Workload workload_;
  std::uint32_t blocks_;              // batches to write to in turn: as many as pyecho has by default
  HostMemory source_;                 // rows that are read in order and over again, more than a cache holds
  HostMemory pool_;                   // bare memcpy's slots
  HostMemory batches_;                // bare memcpy's batches
  std::vector<std::uint32_t> order_;  // slots in random order
};

}  // namespace pyecho::bench
