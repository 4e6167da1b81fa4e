// Copies that leave the caches alone, for what has left them anyway by the time it is read.
//
// An ordinary store first reads the line that it is going to overwrite, and the line is written back when the caches need
// room: three transfers for every line copied. A streaming ("non-temporal") store writes past the caches: two transfers,
// and what others have in the caches stays there. But then the reader has to fetch the copy from memory. So it pays where
// so much is written between a copy and its reading that the caches would have lost it.
//
// Streaming stores are not ordered by a release alone. The thread that has made a streaming copy calls stream_fence()
// before it lets another thread read or overwrite it.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace pyecho {

// The lines at both ends of a copy are stored ordinarily, since neighbours share them: in a shorter one they are too many.
inline constexpr std::size_t kMinStreamBytes = 1024;

// As std::memcpy, with streaming stores where the processor has them. Any thread.
void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept;

// As std::memcpy; `stream`: with streaming stores, if it is long enough.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size_bytes, bool stream) noexcept {
  if (stream && size_bytes >= kMinStreamBytes) {
    stream_copy(to, from, size_bytes);
  } else {
    std::memcpy(to, from, size_bytes);
  }
}

// Orders this thread's streaming stores before all its later stores.
void stream_fence() noexcept;

// Whether copies of up to `longest` bytes into `size_bytes` of memory, all of which is in use in turn, had better be
// streamed. False where there are no streaming stores: on other processors than x86-64, and under ThreadSanitizer.
[[nodiscard]] bool worth_streaming(std::size_t size_bytes, std::size_t longest) noexcept;

// The ways to stream that this processor has, the best one first; none if it has none. For tests.
using StreamCopy = void (*)(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept;
[[nodiscard]] std::span<const StreamCopy> stream_copies() noexcept;

}  // namespace pyecho
