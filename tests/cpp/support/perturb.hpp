// Random delays that vary the interleaving. No test relies on them.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "core/random.hpp"
#include "core/sync/event_count.hpp"

namespace pyecho::test {

class Perturb {
 public:
  // `strength` 0: no delays at all.
  Perturb(std::uint64_t seed, std::uint32_t strength) : random_(seed), strength_(strength) {}

  void operator()() {
    if (strength_ == 0) {
      return;
    }
    switch (random_.below(64 / strength_ + 4)) {
      case 0:
        std::this_thread::yield();
        break;
      case 1:
        std::this_thread::sleep_for(std::chrono::microseconds(random_.below(20 * strength_)));
        break;
      case 2:
        for (std::uint32_t spin = random_.below(30 * strength_); spin > 0; --spin) {
          relax_processor();
        }
        break;
      default:
        break;
    }
  }

 private:
  Xoshiro256 random_;
  std::uint32_t strength_;
};

}  // namespace pyecho::test
