#include "core/stage/uploads.hpp"

#include <utility>

namespace pyecho {
namespace {

constexpr int kRelaxed = 2;     // capture mode
constexpr int kNotReady = 600;  // cudaErrorNotReady

}  // namespace

// Prepares the calling thread, once. Relaxed: its calls do not disturb a CUDA graph that another thread captures.
void Uploads::enter() const noexcept {
  thread_local int entered = -1;
  int mode = kRelaxed;
  if (entered != device_ && runtime_.exchange_capture_mode(&mode) == 0 && runtime_.set_device(device_) == 0) {
    entered = device_;
  }
}

void Uploads::send(const std::byte* data, std::size_t size_bytes, Upload& upload) noexcept {
  enter();
  int error = runtime_.wait_event(stream_, upload.free, 0);
  if (error == 0) {
    error = runtime_.copy(upload.to, data, size_bytes, kHostToDevice, stream_);
  }
  if (error == 0) {
    error = runtime_.record(upload.arrived, stream_);
  }
  sent_bytes_.fetch_add_relaxed(size_bytes);
  upload.error = error;
}

bool Uploads::passed(Upload& upload) const noexcept {
  enter();
  const int error = runtime_.query(upload.arrived);
  if (error == kNotReady) {
    return false;
  }
  // One error may be of this call, two are the device's.
  return error == 0 || std::exchange(upload.error, error) != 0;
}

}  // namespace pyecho
