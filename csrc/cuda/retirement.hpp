// Leases of pinned batches that the consumer has dropped while the device may still read them.
//
// A consumer may copy a pinned batch to a device by itself, asynchronously, and drop the batch at once. Nobody but the
// driver knows when that copy is done. So a dropped lease does not end before all work that the consumer's streams had
// been given by then.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "core/batch_pool.hpp"
#include "core/sequence.hpp"
#include "cuda/device.hpp"
#include "cuda/event.hpp"

namespace pyecho::cuda {

// Any thread.
class Retirement {
 public:
  explicit Retirement(const Device& device);
  // Waits for the device, then ends the leases that are left. What cannot be waited for (a stream is being captured
  // still) is lost, and with it the memory: better than overwritten.
  ~Retirement();
  Retirement(const Retirement&) = delete;
  Retirement& operator=(const Retirement&) = delete;

  // Ends the lease once `stream` and the legacy default stream have done what they were given so far. Does not block,
  // unless there is no memory to remember the lease in. In a forked child the lease ends at once: the device is not ours.
  void retire(Lease lease, StreamHandle stream) noexcept;
  // Ends the leases that the device is done with, in the order in which they came. If the driver or the context has
  // ended, or is beyond repair, these are all. Does not block, save to find that out.
  void poll() noexcept;
  // How many are waiting.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_count_.load_relaxed(); }

 private:
  struct Waiting {
    Lease lease;
    std::array<StreamHandle, 2> streams;
    std::array<Event, 2> events;
    bool recorded = false;  // else a stream was being captured: recorded at a later look
  };

  Result record(Waiting& entry) const noexcept;
  [[nodiscard]] bool over(Waiting& entry) const;
  [[nodiscard]] bool wait(Waiting& entry) const;
  [[nodiscard]] bool gone(Result failure) const;

  const Device& device_;
  std::shared_ptr<EventPool> events_;
  std::mutex mutex_;
  std::deque<Waiting> waiting_;        // guarded by mutex_
  Shared<std::size_t> waiting_count_;  // waiting_.size(), for a look without the mutex
};

}  // namespace pyecho::cuda
