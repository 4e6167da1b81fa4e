// Copies of batches to a CUDA device. The thread that has made a batch enqueues its copy: no hand-over, no Python, no
// wait, and one copy for all leaves. Streams, events and memory belong to another library (PyTorch); the functions are
// those of the CUDA runtime that the process has loaded.
//
// Each block of pinned memory has a block of device memory for its next batch, and two events:
//
// event   | recorded by                                  | waited for by
// free    | the consumer, once it has allocated the      | the copy, on the device: what used that memory before is over,
//         | device block on its stream                   | and no more batches are under way than there are blocks
// arrived | send(), behind the copy                      | the consumer's stream, and passed()
//
// The Upload of a block belongs to the thread that has the block; the orders are those of BatchPool and Driver.
// sent_bytes_: written by workers, read by any thread, relaxed, statistics.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sync/atomic.hpp"

namespace pyecho {

// The destination of the batch in a block of pinned memory.
struct Upload {
  void* to = nullptr;                 // on the device
  void* free = nullptr;               // event
  void* arrived = nullptr;            // event
  int error = 0;                      // not 0: the batch may not have been sent, and must be sent again
  static constexpr int kUnsent = -1;  // no error of the runtime
};

class Uploads {
 public:
  static constexpr int kHostToDevice = 1;

  // Functions of the runtime. They return 0 or an error. None of them blocks, unless the stream is so far behind that the
  // driver takes no more work for it.
  struct Runtime {
    int (*set_device)(int device);
    int (*exchange_capture_mode)(int* mode);
    int (*wait_event)(void* stream, void* event, unsigned flags);
    int (*copy)(void* to, const void* from, std::size_t size_bytes, int kind, void* stream);
    int (*record)(void* event, void* stream);
    int (*query)(void* event);
  };

  Uploads(const Runtime& runtime, int device, void* stream) noexcept
      : runtime_(runtime), device_(device), stream_(stream) {}

  // Enqueues the copy of `size_bytes` from `data` to upload.to; sets upload.error. For threads of pyecho's, whose
  // current device it sets. Never blocks.
  void send(const std::byte* data, std::size_t size_bytes, Upload& upload) noexcept;
  // True once the copy is over, or the device has failed, so that the pinned memory may be written again.
  [[nodiscard]] bool passed(Upload& upload) const noexcept;

  // Any thread.
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return sent_bytes_.load_relaxed(); }

 private:
  void enter() const noexcept;

  const Runtime runtime_;
  const int device_;
  void* const stream_;
  Atomic<std::uint64_t> sent_bytes_;
};

}  // namespace pyecho
