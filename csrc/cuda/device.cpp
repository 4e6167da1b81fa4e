#include "cuda/device.hpp"

#include <array>
#include <map>
#include <mutex>

namespace pyecho::cuda {

const Device& Device::get(int ordinal) {
  // Leaked, with the devices in it, because at exit the driver may end before us.
  static auto* const mutex = new std::mutex;
  static auto* const devices = new std::map<int, const Device*>;
  Driver::get().require();
  const std::scoped_lock lock(*mutex);
  const Device*& device = (*devices)[ordinal];
  if (device == nullptr) {
    device = new Device(ordinal);
  }
  return *device;
}

Device::Device(int ordinal) : driver_(Driver::get()), ordinal_(ordinal) {
  if (ordinal < 0 || ordinal >= driver_.device_count()) {
    throw CudaError("there is no CUDA device " + std::to_string(ordinal) + ", the last one is " +
                        std::to_string(driver_.device_count() - 1),
                    kInvalidDevice, "", "");
  }
  driver_.call(&DriverApi::device_get, &handle_, ordinal);
  driver_.call(&DriverApi::primary_context_retain, &context_, handle_);
  const CurrentContext current(*this);
  driver_.call(&DriverApi::stream_create, &stream_, kStreamNonBlocking);
}

std::string Device::name() const {
  driver_.require();
  std::array<char, 256> name{};
  driver_.call(&DriverApi::device_get_name, name.data(), static_cast<int>(name.size()), handle_);
  return name.data();
}

int Device::numa_node() const noexcept {
  if (!driver_.ready()) {
    return -1;
  }
  int node = -1;
  const Result result = driver_.try_call(&DriverApi::device_get_attribute, &node, kAttributeHostNumaId, handle_);
  return result == kSuccess ? node : -1;  // older drivers do not know the attribute
}

std::vector<int> active_devices() {
  const Driver& driver = Driver::get();
  std::vector<int> active_ones;
  for (int ordinal = 0; ordinal < driver.device_count(); ++ordinal) {
    DeviceHandle handle = 0;
    unsigned flags = 0;
    int active = 0;
    if (driver.try_call(&DriverApi::device_get, &handle, ordinal) == kSuccess &&
        driver.try_call(&DriverApi::primary_context_get_state, handle, &flags, &active) == kSuccess && active != 0) {
      active_ones.push_back(ordinal);
    }
  }
  return active_ones;
}

CurrentContext::CurrentContext(const Device& device) : driver_(device.driver()) {
  driver_.require();
  driver_.call(&DriverApi::context_push, device.context());
  if (const Result result = driver_.try_call(&DriverApi::thread_exchange_capture_mode, &capture_mode_);
      result != kSuccess) {
    ContextHandle popped = nullptr;
    static_cast<void>(driver_.try_call(&DriverApi::context_pop, &popped));
    throw driver_.error_of(result, &DriverApi::thread_exchange_capture_mode);
  }
}

CurrentContext::~CurrentContext() {
  ContextHandle popped = nullptr;
  static_cast<void>(driver_.try_call(&DriverApi::thread_exchange_capture_mode, &capture_mode_));
  static_cast<void>(driver_.try_call(&DriverApi::context_pop, &popped));
}

}  // namespace pyecho::cuda
