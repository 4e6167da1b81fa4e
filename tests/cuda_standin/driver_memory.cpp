#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "driver.hpp"
#include "state.hpp"

namespace pyecho::standin {
namespace {

constexpr unsigned kRegisterFlags = 15;  // PORTABLE, DEVICEMAP, IOMEMORY, READ_ONLY
constexpr unsigned kMemoryTypeDevice = 2;
constexpr std::size_t kAllocationAlignment = 512;
constexpr int kUninitialized = 0xA5;  // what new device memory is filled with

std::byte* pointer_of(DevicePointer pointer) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(pointer));
}

bool on_device(const State& state, const std::byte* data) {
  const auto after = state.memory.allocated.upper_bound(reinterpret_cast<std::uintptr_t>(data));
  return after != state.memory.allocated.begin() &&
         overlap(std::prev(after)->second.data.get(), std::prev(after)->second.size_bytes, data, 1);
}

Result copy_async(State& state, Lock& lock, const Copy& copy, StreamHandle stream) {
  const std::shared_ptr<Stream> found = find_stream(state, stream);
  if (found == nullptr) {
    return kInvalidHandle;
  }
  if (copy.size_bytes == 0) {
    return kSuccess;
  }
  if (copy.to == nullptr || copy.from == nullptr) {
    return kInvalidValue;
  }
  if (is_captured(state, found)) {
    return capture_work(state);
  }
  if (state.memory.registered.cover(copy.host_side(), copy.size_bytes)) {
    issue(state, found, copy);
    return kSuccess;
  }
  ++state.counters.unpinned_copies;
  const Result result = wait_until(state, lock, [&, issued = found->issued] { return found->finished >= issued; });
  if (result == kSuccess) {
    copy_now(state, lock, copy);
  }
  return result;
}

}  // namespace

Result memory_host_register(void* data, std::size_t size_bytes, unsigned flags) {
  return call("cuMemHostRegister", Needs::kNoCapture, [&](State& state, Lock&) -> Result {
    const auto* const begin = static_cast<const std::byte*>(data);
    RegisteredRanges& registered = state.memory.registered;
    if (data == nullptr || size_bytes == 0 || (flags & ~kRegisterFlags) != 0) {
      return kInvalidValue;
    }
    if (registered.overlaps(begin, size_bytes)) {
      return kHostMemoryAlreadyRegistered;
    }
    if (registered.size_bytes() + size_bytes > state.config.register_limit) {
      return kOutOfMemory;
    }
    registered.add(begin, size_bytes);
    return kSuccess;
  });
}

Result memory_host_unregister(void* data) {
  return call("cuMemHostUnregister", Needs::kNoCapture, [&](State& state, Lock& lock) -> Result {
    const auto* const begin = static_cast<const std::byte*>(data);
    const std::size_t size_bytes = state.memory.registered.size_of(begin);
    if (size_bytes == 0) {
      return kHostMemoryNotRegistered;
    }
    state.memory.registered.remove(begin);
    if (!copy_pending(state, begin, size_bytes)) {
      return kSuccess;
    }
    record_violation(state, "cuMemHostUnregister: a copy of " + std::to_string(size_bytes) +
                                " registered bytes, or of some of them, was pending");
    // The caller may unmap the memory now; what is wrong has been noted, and a crash would tell less.
    skip_copies(state, begin, size_bytes);
    return wait_until(state, lock, [&] { return !copy_running(state, begin, size_bytes); });
  });
}

Result pointer_get_attribute(void* value, int attribute, DevicePointer pointer) {
  return call("cuPointerGetAttribute", Needs::kContext, [&](State& state, Lock&) -> Result {
    const std::byte* const data = pointer_of(pointer);
    if (value == nullptr || attribute != kPointerMemoryType) {
      return kInvalidValue;
    }
    const bool registered = state.memory.registered.cover(data, 1);
    if (!registered && !on_device(state, data)) {
      return kInvalidValue;
    }
    const unsigned type = registered ? kMemoryTypeHost : kMemoryTypeDevice;
    std::memcpy(value, &type, sizeof(type));
    return kSuccess;
  });
}

Result memory_allocate(DevicePointer* pointer, std::size_t size_bytes) {
  return call("cuMemAlloc", Needs::kNoCapture, [&](State& state, Lock&) -> Result {
    if (pointer == nullptr || size_bytes == 0) {
      return kInvalidValue;
    }
    const std::size_t rounded = (size_bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
    std::unique_ptr<std::byte, FreeMemory> data(
        rounded < size_bytes ? nullptr : static_cast<std::byte*>(std::aligned_alloc(kAllocationAlignment, rounded)));
    if (data == nullptr) {
      return kOutOfMemory;
    }
    std::memset(data.get(), kUninitialized, size_bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(data.get());
    state.memory.allocated.emplace(address, Allocation{std::move(data), size_bytes});
    *pointer = address;
    return kSuccess;
  });
}

Result memory_free(DevicePointer pointer) {
  return call("cuMemFree", Needs::kNoCapture, [&](State& state, Lock& lock) -> Result {
    if (pointer == 0) {
      return kSuccess;
    }
    // Taken out first, so that nobody else frees it while this waits.
    auto taken = state.memory.allocated.extract(static_cast<std::uintptr_t>(pointer));
    if (taken.empty()) {
      return kInvalidValue;
    }
    const Allocation& allocation = taken.mapped();
    const Result result =
        wait_until(state, lock, [&] { return !copy_pending(state, allocation.data.get(), allocation.size_bytes); });
    if (result != kSuccess) {
      state.memory.allocated.insert(std::move(taken));
    }
    return result;
  });
}

Result memory_copy_to_device_async(DevicePointer to, const void* from, std::size_t size_bytes, StreamHandle stream) {
  return call("cuMemcpyHtoDAsync", Needs::kContext, [&](State& state, Lock& lock) -> Result {
    const Copy copy{
        .to = pointer_of(to), .from = static_cast<const std::byte*>(from), .size_bytes = size_bytes, .to_device = true};
    return copy_async(state, lock, copy, stream);
  });
}

Result memory_copy_to_host_async(void* to, DevicePointer from, std::size_t size_bytes, StreamHandle stream) {
  return call("cuMemcpyDtoHAsync", Needs::kContext, [&](State& state, Lock& lock) -> Result {
    const Copy copy{
        .to = static_cast<std::byte*>(to), .from = pointer_of(from), .size_bytes = size_bytes, .to_device = false};
    return copy_async(state, lock, copy, stream);
  });
}

}  // namespace pyecho::standin
