// A pool of events, because creating an event while kernels run is expensive.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "cuda/device.hpp"

namespace pyecho::cuda {

class EventPool;

struct GiveEventBack {
  std::shared_ptr<EventPool> pool{};
  void operator()(EventHandle handle) const noexcept;
};

// An event of a pool, returned to the pool by the destructor. A stream that waits for the event keeps waiting for the work
// recorded at that time, so the event may be recorded again at once.
using Event = std::unique_ptr<std::remove_pointer_t<EventHandle>, GiveEventBack>;

// Any thread.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(const Device& device) : device_(device) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // Creates events until `events` are idle. A context must be current. Throws CudaError.
  void prepare(std::size_t events);
  // Returns an idle event, or creates one. A context must be current. Throws CudaError.
  Event take();
  void give_back(EventHandle handle) noexcept;

 private:
  const Device& device_;
  std::mutex mutex_;
  std::vector<EventHandle> idle_;
  std::size_t made_ = 0;  // events created; idle_ has room for all of them, so give_back() never allocates
};

}  // namespace pyecho::cuda
