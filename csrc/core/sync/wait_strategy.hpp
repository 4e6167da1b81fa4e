// How long a thread spins and yields before it sleeps.
#pragma once

#include <cstdint>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pyecho {

// Checks `spins` times, some nanoseconds apart, then `yields` times, with a yield after each check, and then sleeps.
// A hand-over that is about to happen needs no system call. Where threads share too few processors, yielding lets the
// other side proceed. A long wait costs some tens of microseconds of processor time once, then nothing. Where other
// programs keep the processors busy, a yield costs a whole time slice, so EventCount then stops yielding for a while.
struct WaitStrategy {
  std::uint32_t spins;
  std::uint32_t yields;

  // For hand-overs that are usually imminent. On a single processor spinning is useless.
  [[nodiscard]] static WaitStrategy spin_then_sleep() noexcept {
    static const bool alone = std::thread::hardware_concurrency() < 2;
    return {.spins = alone ? 0U : 32U, .yields = 64U};
  }
  [[nodiscard]] static constexpr WaitStrategy sleep() noexcept { return {.spins = 0, .yields = 0}; }
};

// Tells the processor that this is a spin loop.
inline void relax_processor() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace pyecho
