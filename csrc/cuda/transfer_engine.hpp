// Asynchronous copies from host to device, on pyecho's stream.
//
//     one thread       auto transfer = engine.start(copies, source);     // issues the copies and returns
//     any thread       transfer->wait_on(stream);                        // before the stream's kernels read the data
//
// Lifetimes:
// - `source` owns the host memory that is read. The engine keeps it until the device has read all of it.
// - After wait_on(stream), later work on the stream sees the data. The host never waits for it.
// - When start() is called, the destination must be free for work in the order of pyecho's stream: it was allocated for
//   that stream, or its earlier use is known to be done.
//
// The calling thread first copies unpinned host memory into pinned memory of the engine, so that the copy to the device is
// asynchronous for any source. Where no memory can be pinned, the driver copies from pageable memory, and start() may
// take as long as the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/memory/host_memory.hpp"
#include "core/sync/atomic.hpp"
#include "cuda/device.hpp"
#include "cuda/event.hpp"
#include "cuda/pinning.hpp"

namespace pyecho::cuda {

struct Copy {
  DevicePointer to;
  const std::byte* from;
  std::size_t size_bytes;  // may be 0
};

// Copies that were started together, or the work covered by mark(). Any thread.
class Transfer {
 public:
  Transfer(const Device& device, Event event) : device_(device), event_(std::move(event)) {}

  // Makes all later work on `stream` wait for the copies. Does not block. Throws CudaError.
  void wait_on(StreamHandle stream) const;
  // True if the engine has found the copies done. Only updated when the engine checks.
  [[nodiscard]] bool done() const noexcept { return done_.load_acquire() != 0; }

 private:
  friend class TransferEngine;
  const Device& device_;
  Event event_;
  Atomic<std::uint32_t> done_;  // set by the engine's thread
};

// One thread at a time, except for the counters.
//
// If a call fails while copies are under way, the engine waits until pyecho's stream is idle and then releases all
// sources. If even waiting fails, it leaks the sources and their memory, unless the driver or the context has ended.
class TransferEngine {
 public:
  // At most `depth` (>= 1) transfers are under way. `kept`: further Transfer objects that are usually alive. Unless it is
  // 0, depth + kept events are created now. Throws CudaError.
  TransferEngine(const Device& device, unsigned depth, unsigned kept = 0);
  // Waits for the transfers under way. If the driver fails, leaks sources that the device may still be reading.
  ~TransferEngine();
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  // Issues the copies in this order. Blocks only while `depth` transfers are under way, and to copy unpinned sources.
  // Throws CudaError; none of these copies is under way then.
  std::shared_ptr<const Transfer> start(std::span<const Copy> copies, std::shared_ptr<void> source);
  // Returns a Transfer that is done once all work queued so far on pyecho's stream is done. Does not block. Throws
  // CudaError.
  std::shared_ptr<const Transfer> mark();
  // Releases the sources that the device is done with. Does not block unless a call fails. Throws CudaError.
  void poll();
  // Blocks until nothing is under way. Throws CudaError.
  void drain();

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  // Returns the payload of all copies so far. Any thread.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load_relaxed(); }
  // Returns how much of it went through the engine's own pinned memory. Any thread.
  [[nodiscard]] std::uint64_t staged_bytes() const noexcept { return staged_bytes_.load_relaxed(); }

 private:
  struct UnderWay {
    std::shared_ptr<Transfer> transfer;
    std::shared_ptr<void> source;
    HostMemory staging;  // empty if the sources were pinned
  };

  HostMemory stage(std::vector<Copy>& copies);
  HostMemory obtain_staging(std::size_t size_bytes);
  bool finish_oldest(Result (*DriverApi::*ask)(EventHandle));
  void retire_oldest();
  void abandon();

  const Device& device_;
  const unsigned depth_;
  std::shared_ptr<Pinning> pinning_;  // of staging_
  std::shared_ptr<EventPool> events_;
  std::deque<UnderWay> under_way_;   // in the order of the stream
  std::vector<HostMemory> staging_;  // idle
  Atomic<std::uint64_t> bytes_;
  Atomic<std::uint64_t> staged_bytes_;
};

}  // namespace pyecho::cuda
