// Replaces the global operator new of the whole test program by one that counts while armed, and can fail. One file of a
// program includes this.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace pyecho::test {

inline std::atomic<bool> armed{false};
inline std::atomic<std::uint64_t> heap_allocations{0};
inline std::atomic<std::size_t> heap_bytes{0};
inline std::atomic<bool> aligned_fail{false};   // allocations for operations
inline thread_local int allocations_left = -1;  // until one fails; below 0: none does

inline void* allocate(std::size_t size_bytes, std::size_t alignment) {
  if (armed.load(std::memory_order_relaxed)) {
    heap_allocations.fetch_add(1, std::memory_order_relaxed);
    heap_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
  }
  const bool is_aligned = alignment > alignof(std::max_align_t);
  const bool fails = (is_aligned && aligned_fail) || (allocations_left >= 0 && allocations_left-- == 0);
  const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  void* const memory = fails ? nullptr : is_aligned ? std::aligned_alloc(alignment, rounded) : std::malloc(size_bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace pyecho::test

[[gnu::noinline]] void* operator new(std::size_t size) { return pyecho::test::allocate(size, 1); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return pyecho::test::allocate(size, 1); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return pyecho::test::allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t alignment) {
  return pyecho::test::allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
