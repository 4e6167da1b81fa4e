// Leases of pinned batches that the consumer has dropped while the device may still read them.
//
// A consumer may copy a pinned batch to a device by itself, asynchronously, and drop the batch at once. Only the driver
// knows when that copy is done. So a dropped lease ends only after all work that was queued by then on the consumer's
// streams: the streams named at the drop, the legacy default streams of their devices (and with them all streams that
// are not non-blocking), and the watched streams.
//
// No event is recorded on a stream that is being captured into a CUDA graph, because the event would become part of the
// graph, and querying it would break the capture. Work queued before the capture is waited for once the capture is over.
// Until then the lease is held back, and its pool is told not to expect its end.
#pragma once

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
  // The legacy default stream of `device` is always waited for.
  explicit DeferredRelease(const Device& device);
  // Waits for the device, then ends the remaining leases. A lease that cannot be waited for (for example, because its
  // stream is still being captured) is leaked with its memory, so that the memory is not overwritten.
  ~DeferredRelease();
  DeferredRelease(const DeferredRelease&) = delete;
  DeferredRelease& operator=(const DeferredRelease&) = delete;

  // Watches these streams of the device from now on, in place of all streams watched on it before. They must not be
  // destroyed. A stream without work is not waited for. Throws std::bad_alloc.
  void watch(const Device& device, std::span<const StreamHandle> streams);
  // Ends the lease once `streams`, the default streams and the watched streams have finished the work queued so far. Never
  // blocks. In a forked child the lease ends at once, because the device belongs to the parent. Without memory to keep it
  // in a list, the lease is leaked.
  void retire(Lease lease, std::span<const ConsumerStream> streams) noexcept;
  // Ends leases that the device is done with, in any order. Checks only a few unfinished entries per call, in rotation.
  // If the driver or the context has ended or is broken, all leases end. Blocks only to find that out.
  void poll() noexcept;
  // Returns the number of waiting leases.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_count_.load_relaxed(); }
  // Returns how many of them wait for the end of a capture or for the success of a call that failed.
  [[nodiscard]] std::size_t held_back() const noexcept { return held_back_count_.load_relaxed(); }

 private:
  struct Lane {
    const Device* device;
    std::shared_ptr<EventPool> events;
    std::vector<StreamHandle> watched;
  };
  // The work queued on a stream when a lease was dropped.
  struct Mark {
    const Lane* lane;
    StreamHandle stream;
    Event event{};
    bool recorded = false;
  };
  struct Waiting {
    Lease lease{};
    std::vector<Mark> marks{};  // not known to be done
    bool held_back = false;     // true if a mark is not recorded
  };

  // event_query, or event_synchronize to wait.
  using Ask = Result (*DriverApi::*)(EventHandle);

  [[nodiscard]] Result capturing(StreamHandle stream) const noexcept;
  Result record(Mark& mark) const noexcept;
  [[nodiscard]] bool over(Mark& mark, Ask ask) const;
  [[nodiscard]] bool over(Waiting& entry, Ask ask);
  [[nodiscard]] static bool gone(const Device& device, Result failure);
  Lane& lane_of(const Device& device);
  void mark_streams(Waiting& entry, std::span<const ConsumerStream> streams);
  void update(Waiting& entry);
  [[nodiscard]] std::list<Waiting> end_leases(Ask ask, std::size_t most_in_vain);

  const Device& device_;
  std::mutex mutex_;
  std::list<Lane> lanes_;                // guarded by mutex_; the first lane is that of device_
  std::list<Waiting> waiting_;           // guarded by mutex_; the next entry to check is the first
  Atomic<std::size_t> waiting_count_;    // waiting_.size(), readable without the mutex
  Atomic<std::size_t> held_back_count_;  // held-back entries of waiting_
};

}  // namespace pyecho::cuda
