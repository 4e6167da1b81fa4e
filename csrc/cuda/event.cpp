#include "cuda/event.hpp"

namespace pyecho::cuda {

void GiveEventBack::operator()(EventHandle handle) const noexcept { pool->give_back(handle); }

void EventPool::prepare(std::size_t events) {
  std::vector<Event> taken;
  while (taken.size() < events) {
    taken.push_back(take());
  }
}

Event EventPool::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      const EventHandle handle = idle_.back();
      idle_.pop_back();
      return Event(handle, {shared_from_this()});
    }
    idle_.reserve(++made_);
  }
  EventHandle handle = nullptr;
  device_.driver().call(&DriverApi::event_create, &handle, kEventDisableTiming | kEventBlockingSync);
  return Event(handle, {shared_from_this()});
}

void EventPool::give_back(EventHandle handle) noexcept {
  if (!device_.driver().ready()) {
    return;  // a forked child; a thread that stayed in the parent may hold the mutex
  }
  const std::scoped_lock lock(mutex_);
  idle_.push_back(handle);
}

EventPool::~EventPool() {
  if (idle_.empty()) {
    return;
  }
  try {
    const CurrentContext current(device_);
    for (const EventHandle handle : idle_) {
      static_cast<void>(device_.driver().try_call(&DriverApi::event_destroy, handle));
    }
  } catch (const CudaError&) {
    // The driver has ended or stayed in the parent process, so its events need no destruction.
  }
}

}  // namespace pyecho::cuda
