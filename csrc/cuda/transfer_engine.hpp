// Copies from host to device that run by themselves, on pyecho's stream, while host and device go on with their work.
//
//     one thread       auto transfer = engine.start(copies, source);     // issues the copies and returns
//     any thread       transfer->wait_on(stream);                        // before the stream's kernels read the data
//
// Three parties, three rules:
// - The host memory that is read belongs to `source`, which the engine keeps until the device has read all of it.
// - Work on a stream that was given to wait_on() afterwards sees the data; the host never waits for it.
// - The device memory that is written must be free when start() is called, for work in the order of pyecho's stream: it
//   was allocated for that stream, or whoever used it before is known to be done.
//
// Host memory that is not pinned is first copied into pinned memory of the engine (by the calling thread), so that the
// copy to the device is asynchronous for any source. Where no memory can be pinned, the driver copies from pageable
// memory, and start() may take as long as the copy.
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

// Copies that were started together, or what mark() was called for. Any thread.
class Transfer {
 public:
  Transfer(const Device& device, Event event) : device_(device), event_(std::move(event)) {}

  // Makes all work that `stream` is given from now on wait for the copies. Does not block. Throws CudaError.
  void wait_on(StreamHandle stream) const;
  // The device was seen to be done with the copies; false also if nobody has looked since.
  [[nodiscard]] bool done() const noexcept { return done_.load_acquire() != 0; }

 private:
  friend class TransferEngine;
  const Device& device_;
  Event event_;
  Atomic<std::uint32_t> done_;  // set by the engine's thread
};

// One thread at a time, save for the counters.
//
// When a call fails while copies are under way, the engine waits until pyecho's stream is idle and lets go of all sources.
// If it cannot even wait, it never lets go of them: they are lost, and with them the memory.
class TransferEngine {
 public:
  // At most `depth` (>= 1) transfers are under way. `kept`: Transfer objects that are usually alive beside those, for
  // which events are made in advance, unless it is 0. Throws CudaError.
  TransferEngine(const Device& device, unsigned depth, unsigned kept = 0);
  // Waits for what is under way. Where the driver fails, sources that the device may be reading still are lost.
  ~TransferEngine();
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  // Issues the copies in this order. Blocks only while `depth` transfers are under way, and to copy unpinned sources.
  // Throws CudaError; none of these copies is under way then.
  std::shared_ptr<const Transfer> start(std::span<const Copy> copies, std::shared_ptr<void> source);
  // Done when everything is that pyecho's stream was given so far, by whomever. Does not block. Throws CudaError.
  std::shared_ptr<const Transfer> mark();
  // Lets go of the sources that the device is done with. Does not block. Throws CudaError.
  void poll();
  // Blocks until nothing is under way. Throws CudaError.
  void drain();

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  // Payload of all copies so far. Any thread.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load_relaxed(); }
  // Of these, what went through the engine's own pinned memory. Any thread.
  [[nodiscard]] std::uint64_t staged_bytes() const noexcept { return staged_bytes_.load_relaxed(); }

 private:
  struct UnderWay {
    std::shared_ptr<Transfer> transfer;
    std::shared_ptr<void> source;
    HostMemory staging;  // empty if the sources were pinned
  };

  HostMemory stage();
  HostMemory obtain_staging(std::size_t size_bytes);
  void finish_oldest();
  void retire_oldest();
  void abandon();
  void lose();

  const Device& device_;
  const unsigned depth_;
  std::shared_ptr<Pinning> pinning_;  // of staging_
  std::shared_ptr<EventPool> events_;
  std::deque<UnderWay> under_way_;   // in the order of the stream
  std::vector<HostMemory> staging_;  // idle
  std::vector<Copy> copies_;         // of the transfer that is being started
  std::vector<Copy*> unpinned_;      // of these
  Atomic<std::uint64_t> bytes_;
  Atomic<std::uint64_t> staged_bytes_;
};

}  // namespace pyecho::cuda
