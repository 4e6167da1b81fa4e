// A pool of events, because creating an event while kernels run is expensive.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/device.hpp"

namespace pyecho::cuda {

class EventPool;

// An event of a pool, returned to the pool by the destructor. Move-only. A stream that waits for the event keeps waiting
// for the work recorded at that time, so the event may be recorded again at once.
class Event {
 public:
  Event() noexcept = default;
  Event(std::shared_ptr<EventPool> pool, EventHandle handle) noexcept : pool_(std::move(pool)), handle_(handle) {}
  ~Event();
  Event(Event&& other) noexcept : pool_(std::move(other.pool_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] EventHandle handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<EventPool> pool_;
  EventHandle handle_ = nullptr;
};

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

 private:
  friend class Event;
  void give_back(EventHandle handle) noexcept;

  const Device& device_;
  std::mutex mutex_;
  std::vector<EventHandle> idle_;
  std::size_t made_ = 0;  // events created; idle_ has room for all of them, so give_back() never allocates
};

}  // namespace pyecho::cuda
