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

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <string>

namespace pyecho {
namespace {

constexpr std::size_t kLineBytes = 64;
// Stream if the memory is at least so many times the cache: less of it is still there when it is read. With a cache of
// 32 MiB, batches of 4 to 36 MiB in total were slower with streaming (writing and reading together), and batches of 73
// and 147 MiB were faster.
constexpr std::size_t kCaches = 2;
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

// Returns the size of the last-level cache that the kernel reports, or an estimate. (The C library multiplies it by
// guesses about processors that share it: ten times too much in some virtual machines.)
std::size_t cache_bytes() {
  std::size_t found = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::size_t kibibytes = 0;
    if (char unit = 0; file >> kibibytes >> unit && unit == 'K') {
      found = std::max(found, kibibytes << 10);
    }
  }
  return found == 0 ? kUnknownCacheBytes : found;
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
  static const std::size_t least = cache_bytes() * kCaches;
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
