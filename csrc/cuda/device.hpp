// One CUDA device: its primary context and pyecho's stream on it.
//
// PyTorch uses the primary context as well, so memory and streams can be shared. The context is retained at the first use
// and never released, and the stream is never destroyed: both last as long as the process.
#pragma once

#include <string>
#include <vector>

#include "cuda/driver.hpp"

namespace pyecho::cuda {

class Device {
 public:
  // Returns the device with this number. The first call retains its context. Throws CudaError. Any thread.
  static const Device& get(int ordinal);

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] ContextHandle context() const noexcept { return context_; }
  [[nodiscard]] std::string name() const;
  // Returns the NUMA node nearest to the device; -1 if unknown.
  [[nodiscard]] int numa_node() const noexcept;
  // Returns pyecho's own non-blocking stream. All loaders share it, because copies to one device are serial anyway.
  [[nodiscard]] StreamHandle stream() const noexcept { return stream_; }

  ~Device() = default;  // leaked, see above
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  explicit Device(int ordinal);

  const Driver& driver_;
  int ordinal_;
  DeviceHandle handle_ = 0;
  ContextHandle context_ = nullptr;
  StreamHandle stream_ = nullptr;
};

// Returns the devices on which the primary context is active in this process. Makes no context. Any thread.
std::vector<int> active_devices();

// Makes the device's context current in this thread for a scope. Within it, calls of this thread do not disturb a CUDA
// graph that another thread captures. Throws CudaError, also in a forked child and after the driver's end.
class CurrentContext {
 public:
  explicit CurrentContext(const Device& device);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  int capture_mode_ = kCaptureModeRelaxed;  // during the scope: the thread's previous mode
};

}  // namespace pyecho::cuda
