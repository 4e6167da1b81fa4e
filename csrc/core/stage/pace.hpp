// The echo factor that an adaptive stage keeps instead of following the source's speed, set while it runs.
//
// variable | written by | read by | order   | pairs with | why
// value_   | any thread | makers  | relaxed | -          | a wish; each batch takes what it finds, and logs what it did
#pragma once

#include "core/sync/atomic.hpp"

namespace pyecho {

class Pace {
 public:
  // Any thread. At least 1; 0: the source's speed decides.
  void set(double factor) noexcept { value_.store_relaxed(factor); }
  [[nodiscard]] double get() const noexcept { return value_.load_relaxed(); }

 private:
  Atomic<double> value_;
};

}  // namespace pyecho
