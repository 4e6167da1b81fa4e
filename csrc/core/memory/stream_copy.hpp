// Copies that bypass the caches, for data that would have left them anyway before it is read.
//
// An ordinary store first reads the line that it overwrites, and the line is written back later, so a copied line costs
// three transfers. A streaming ("non-temporal") store bypasses the caches. It costs two transfers and evicts nothing,
// but the reader must fetch the copy from memory. So streaming pays if so much is written between a copy and its
// reading that the copy would have left the caches.
//
// A release alone does not order streaming stores. The thread that made a streaming copy must call stream_fence()
// before it lets another thread read or overwrite it.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace pyecho {

// Shorter copies are not streamed. The cache lines at both ends of a copy need ordinary stores, because neighbours
// share them, and in a short copy they are too large a part.
inline constexpr std::size_t kMinStreamBytes = 1024;

// Same as std::memcpy, with streaming stores where the processor has them. Any thread.
void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept;

// Same as std::memcpy. With `stream`, uses streaming stores if the copy is long enough.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size_bytes, bool stream) noexcept {
  if (stream && size_bytes >= kMinStreamBytes) {
    stream_copy(to, from, size_bytes);
  } else {
    std::memcpy(to, from, size_bytes);
  }
}

// Orders this thread's streaming stores before all its later stores.
void stream_fence() noexcept;

// True if copies of up to `longest` bytes, made in turn into all of `size_bytes` of memory, should be streamed. False
// where there are no streaming stores: on processors other than x86-64, and under ThreadSanitizer.
[[nodiscard]] bool worth_streaming(std::size_t size_bytes, std::size_t longest) noexcept;

// Returns the streaming copies that this processor supports, the best one first. For tests.
using StreamCopy = void (*)(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept;
[[nodiscard]] std::span<const StreamCopy> stream_copies() noexcept;

}  // namespace pyecho
