// Leases of pinned batches that the consumer has dropped while the device may still read them.
//
// A consumer may copy a pinned batch to a device by itself, asynchronously, and drop the batch at once. Nobody but the
// driver knows when that copy is done. So a dropped lease does not end before all work that the consumer's streams had
// been given by then: those that are named when it is dropped, the legacy default streams of their devices (and with them
// all streams that are not non-blocking), and those that are watched.
//
// No event is recorded on a stream that is being captured into a CUDA graph: it would become a part of the graph, and to
// ask it would break the capture. What the stream had been given before is waited for once the capture is over. Until
// then the lease is held back, and its pool is told not to count on it.
#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/memory/batch_pool.hpp"
#include "core/sync/atomic.hpp"
#include "cuda/device.hpp"
#include "cuda/event.hpp"

namespace pyecho::cuda {

struct ConsumerStream {
  const Device* device;
  StreamHandle handle;
};

// Any thread.
class DeferredRelease {
 public:
  // `device` is the one whose legacy default stream is waited for in any case.
  explicit DeferredRelease(const Device& device);
  // Waits for the device, then ends the leases that are left. What cannot be waited for (a stream is being captured
  // still) is lost, and with it the memory: better than overwritten.
  ~DeferredRelease();
  DeferredRelease(const DeferredRelease&) = delete;
  DeferredRelease& operator=(const DeferredRelease&) = delete;

  // From now on these streams of the device count as the consumer's, as far as they have work. They must not be
  // destroyed. Replaces those that were watched on the device before. Throws std::bad_alloc.
  void watch(const Device& device, std::span<const StreamHandle> streams);
  // Ends the lease once `streams` and those above have done what they were given so far. Does not block, unless there is
  // no memory to remember the lease in. In a forked child the lease ends at once: the device is not ours.
  void retire(Lease lease, std::span<const ConsumerStream> streams) noexcept;
  void retire(Lease lease, StreamHandle stream) noexcept {
    retire(std::move(lease), std::array{ConsumerStream{.device = &device_, .handle = stream}});
  }
  // Ends leases that the device is done with, in any order. Looks in vain at a few only, at others the next time. If the
  // driver or the context has ended, or is beyond repair, all leases end. Does not block, save to find that out.
  void poll() noexcept;
  // How many leases are waiting.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_count_.load_relaxed(); }
  // How many of them wait for more than the device: for the end of a capture, or for a call to succeed that did not.
  [[nodiscard]] std::size_t held_back() const noexcept { return held_back_count_.load_relaxed(); }

 private:
  struct Lane {
    const Device* device;
    std::shared_ptr<EventPool> events;
    std::vector<StreamHandle> watched;
  };
  // What a stream had been given.
  struct Mark {
    const Lane* lane;
    StreamHandle stream;
    Event event{};
    bool recorded = false;
  };
  struct Waiting {
    Lease lease{};
    std::vector<Mark> marks{};  // those that are not seen to be done
    bool held_back = false;     // one of them is not recorded
  };

  [[nodiscard]] Result capturing(StreamHandle stream) const noexcept;
  [[nodiscard]] bool idle(StreamHandle stream) const noexcept;
  Result record(Mark& mark) const noexcept;
  [[nodiscard]] bool over(Mark& mark) const;
  [[nodiscard]] bool over(Waiting& entry);
  [[nodiscard]] bool wait(Mark& mark) const;
  [[nodiscard]] bool wait(Waiting& entry) const;
  [[nodiscard]] static bool gone(const Device& device, Result failure);
  Lane& lane_of(const Device& device);
  void list_streams(Waiting& entry, std::span<const ConsumerStream> streams);
  void list_watched(Waiting& entry, const Lane& lane) const;
  void wait_without_memory(std::span<const ConsumerStream> streams) const noexcept;
  void update(Waiting& entry);
  void look(std::list<Waiting>& ended);
  void lose();

  const Device& device_;
  std::mutex mutex_;
  std::list<Lane> lanes_;                // guarded by mutex_; the first one is that of device_
  std::list<Waiting> waiting_;           // guarded by mutex_; the next one to look at is the first
  Atomic<std::size_t> waiting_count_;    // waiting_.size(), for a look without the mutex
  Atomic<std::size_t> held_back_count_;  // of these, held back
};

}  // namespace pyecho::cuda
