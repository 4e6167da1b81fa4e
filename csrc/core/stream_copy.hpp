// Copies that leave the caches alone, for what has left them anyway by the time it is read.
//
// An ordinary store first reads the line that it is going to overwrite, and the line is written back when the caches need
// room: three transfers for every line copied. A streaming ("non-temporal") store writes past the caches: two transfers,
// and what others have in the caches stays there. But then the reader has to fetch the copy from memory. So it pays where
// so much is written between a copy and its reading that the caches would have lost it.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace pyecho {

// As std::memcpy, with streaming stores where the processor has them and the copy is long enough. Any thread. Other
// threads may read the copy only after this thread has called stream_fence() and then published it: streaming stores are
// not ordered by a release alone.
void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept;

// One or the other.
inline void copy(std::byte* to, const std::byte* from, std::size_t size_bytes, bool stream) noexcept {
  if (stream) {
    stream_copy(to, from, size_bytes);
  } else {
    std::memcpy(to, from, size_bytes);
  }
}

// Orders this thread's streaming stores before all its later stores.
void stream_fence() noexcept;

// Whether copies into so much memory, which is written in turn, had better be streamed. False where the processor has no
// streaming stores.
[[nodiscard]] bool worth_streaming(std::size_t size_bytes) noexcept;

// The ways to copy that this processor has, the best one first; stream_copy() takes that. For tests.
using StreamCopy = void (*)(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept;
[[nodiscard]] std::span<const StreamCopy> stream_copies() noexcept;

}  // namespace pyecho
