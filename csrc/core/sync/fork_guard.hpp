// Tells an object whether this process is a fork of the one that made it.
//
// fork() copies memory but only the calling thread, so an object with threads is dead in the child, and waiting for it
// would hang. Such an object keeps a ForkGuard and checks it at each entry, at the cost of one load.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <system_error>

#include "core/sync/atomic.hpp"

namespace pyecho {

class ForkGuard {
 public:
  // The first guard of a process installs the fork handler. Throws std::system_error if that fails.
  ForkGuard() : made_in_(generation_.load_relaxed()) {
    static const int error = pthread_atfork(nullptr, nullptr, [] { generation_.fetch_add_relaxed(1); });
    if (error != 0) {
      throw std::system_error(error, std::generic_category(), "pthread_atfork");
    }
  }

  // True in a child of the process in which this guard was made.
  [[nodiscard]] bool forked() const noexcept { return generation_.load_relaxed() != made_in_; }

 private:
  // Advanced in the child at every fork, before it has a second thread.
  inline static Atomic<std::uint64_t> generation_;

  std::uint64_t made_in_;
};

}  // namespace pyecho
