#include "core/memory/stream_copy.hpp"

// ThreadSanitizer does not see streaming stores, so copies are plain under it and no race is missed.
#if defined(__SANITIZE_THREAD__)
#define PYECHO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PYECHO_TSAN 1
#endif
#endif

#if defined(__x86_64__) && !defined(PYECHO_TSAN)

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace pyecho {
namespace {

constexpr std::size_t kLineBytes = 64;
// Stream if the memory is at least this fraction of the cache. Before a copy is read, the rest of that memory is written,
// about as much is read from the slots and from the source, and other programs use the cache, too. In
// benchmarks/cpp/stream_benchmark with a cache of 260 MiB, batches of 36 MiB in total were slower with streaming, and
// batches of 73 and 147 MiB were faster.
constexpr std::size_t kCacheShare = 4;
constexpr std::size_t kUnknownCacheBytes = std::size_t{32} << 20;

// Copies the bytes before the first cache line boundary of `to`, and returns their number.
std::size_t copy_head(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t head = std::min(size_bytes, past == 0 ? 0 : kLineBytes - past);
  std::memcpy(to, from, head);
  return head;
}

__m128i load(const std::byte* from) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

void sse2_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  std::size_t done = copy_head(to, from, size_bytes);
  for (; size_bytes - done >= kLineBytes; done += kLineBytes) {
    const __m128i first = load(from + done);
    const __m128i second = load(from + done + 16);
    const __m128i third = load(from + done + 32);
    const __m128i fourth = load(from + done + 48);
    auto* const line = reinterpret_cast<__m128i*>(to + done);
    _mm_stream_si128(line, first);
    _mm_stream_si128(line + 1, second);
    _mm_stream_si128(line + 2, third);
    _mm_stream_si128(line + 3, fourth);
  }
  std::memcpy(to + done, from + done, size_bytes - done);
}

// Stores a whole cache line at a time.
__attribute__((target("avx512f"))) void avx512_copy(std::byte* to, const std::byte* from,
                                                    std::size_t size_bytes) noexcept {
  std::size_t done = copy_head(to, from, size_bytes);
  for (; size_bytes - done >= kLineBytes; done += kLineBytes) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + done), _mm512_loadu_si512(from + done));
  }
  std::memcpy(to + done, from + done, size_bytes - done);
}

// Returns the size of the last-level cache, or an estimate if the system does not report it.
std::size_t cache_bytes() noexcept {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (const auto size_bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE); size_bytes > 0) {
    return static_cast<std::size_t>(size_bytes);
  }
#endif
  return kUnknownCacheBytes;
}

}  // namespace

std::span<const StreamCopy> stream_copies() noexcept {
  static constexpr std::array<StreamCopy, 2> kCopies{avx512_copy, sse2_copy};
  return std::span(kCopies).subspan(__builtin_cpu_supports("avx512f") != 0 ? 0 : 1);
}

void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  static const StreamCopy best = stream_copies().front();
  best(to, from, size_bytes);
}

void stream_fence() noexcept { _mm_sfence(); }

bool worth_streaming(std::size_t size_bytes, std::size_t longest) noexcept {
  static const std::size_t least = cache_bytes() / kCacheShare;
  return size_bytes >= least && longest >= kMinStreamBytes;
}

}  // namespace pyecho

#else

namespace pyecho {

std::span<const StreamCopy> stream_copies() noexcept { return {}; }

void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  std::memcpy(to, from, size_bytes);
}

void stream_fence() noexcept {}

bool worth_streaming(std::size_t /*size_bytes*/, std::size_t /*longest*/) noexcept { return false; }

}  // namespace pyecho

#endif
