// One CUDA device: its primary context and pyecho's stream on it.
//
// The primary context is the one that PyTorch uses as well, so memory and streams are common property. It is retained
// at the first use and never released, nor is the stream destroyed: both last as long as the process.
#pragma once

#include <string>
#include <vector>

#include "cuda/driver.hpp"

namespace pyecho::cuda {

class Device {
 public:
  // The device with this number; the first call retains its context. Throws CudaError. Any thread.
  static const Device& get(int ordinal);

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] ContextHandle context() const noexcept { return context_; }
  [[nodiscard]] std::string name() const;
  // The NUMA node whose memory is nearest to the device; -1 if unknown.
  [[nodiscard]] int numa_node() const noexcept;
  // pyecho's own, non-blocking, for all loaders together: copies to one device run one after the other anyway.
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

// The devices on which this process has a context, made by whomever. Makes none. Any thread.
std::vector<int> active_devices();

// Makes the device's context current in this thread for a scope, and keeps what the thread does from disturbing a CUDA
// graph that another one captures. Throws CudaError, also in a forked child and after the driver's end.
class CurrentContext {
 public:
  explicit CurrentContext(const Device& device);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  int capture_mode_ = kCaptureModeRelaxed;  // the thread's own while the scope lasts
};

}  // namespace pyecho::cuda
