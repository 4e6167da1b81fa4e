#include "core/stream_copy.hpp"

#include <array>
#include <cstring>

// ThreadSanitizer does not see streaming stores: under it, copies are plain, so that no race is missed.
#if defined(__has_feature)
#define PYECHO_TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define PYECHO_TSAN 1
#else
#define PYECHO_TSAN 0
#endif

#if defined(__x86_64__) && !PYECHO_TSAN
#define PYECHO_STREAMING_STORES 1
#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#else
#define PYECHO_STREAMING_STORES 0
#endif

namespace pyecho {
namespace {

#if PYECHO_STREAMING_STORES

constexpr std::size_t kLineBytes = 64;
// The lines at both ends are shared with neighbours and stored normally, so short copies gain nothing.
constexpr std::size_t kMinStreamBytes = 1024;
// Between a copy and its reading everything else in that memory is written, about as much is read from the slots and from
// the source, and others use the cache, too. Measured: at a seventh of the cache streaming loses, from a third on it wins.
constexpr std::size_t kCacheShare = 4;
constexpr std::size_t kUnknownCacheBytes = std::size_t{32} << 20;

// Copies what lies before the first whole line of `to`; returns how much that is.
std::size_t copy_head(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t head = std::min(size_bytes, past == 0 ? 0 : kLineBytes - past);
  std::memcpy(to, from, head);
  return head;
}

void sse2_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  std::size_t done = copy_head(to, from, size_bytes);
  for (; size_bytes - done >= kLineBytes; done += kLineBytes) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + done);
    auto* const line = reinterpret_cast<__m128i*>(to + done);
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, first);
    _mm_stream_si128(line + 1, second);
    _mm_stream_si128(line + 2, third);
    _mm_stream_si128(line + 3, fourth);
  }
  std::memcpy(to + done, from + done, size_bytes - done);
}

// A whole line with each store.
__attribute__((target("avx512f"))) void avx512_copy(std::byte* to, const std::byte* from,
                                                    std::size_t size_bytes) noexcept {
  std::size_t done = copy_head(to, from, size_bytes);
  for (; size_bytes - done >= kLineBytes; done += kLineBytes) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + done), _mm512_loadu_si512(from + done));
  }
  std::memcpy(to + done, from + done, size_bytes - done);
}

// Of the last cache, which others may share.
std::size_t cache_bytes() noexcept {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (const auto size_bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE); size_bytes > 0) {
    return static_cast<std::size_t>(size_bytes);
  }
#endif
  return kUnknownCacheBytes;
}

#else

void plain_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  std::memcpy(to, from, size_bytes);
}

#endif

}  // namespace

#if PYECHO_STREAMING_STORES

std::span<const StreamCopy> stream_copies() noexcept {
  static constexpr std::array<StreamCopy, 2> kCopies{avx512_copy, sse2_copy};
  return std::span(kCopies).subspan(__builtin_cpu_supports("avx512f") != 0 ? 0 : 1);
}

void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  static const StreamCopy best = stream_copies().front();
  if (size_bytes < kMinStreamBytes) {
    std::memcpy(to, from, size_bytes);
  } else {
    best(to, from, size_bytes);
  }
}

void stream_fence() noexcept { _mm_sfence(); }

bool worth_streaming(std::size_t size_bytes) noexcept {
  static const std::size_t least = cache_bytes() / kCacheShare;
  return size_bytes >= least;
}

#else

std::span<const StreamCopy> stream_copies() noexcept {
  static constexpr std::array<StreamCopy, 1> kCopies{plain_copy};
  return kCopies;
}

void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  plain_copy(to, from, size_bytes);
}

void stream_fence() noexcept {}

bool worth_streaming(std::size_t /*size_bytes*/) noexcept { return false; }

#endif

}  // namespace pyecho
