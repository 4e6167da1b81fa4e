#include "core/sync/fork_guard.hpp"

#include <pthread.h>

#include <system_error>

namespace pyecho {

ForkGuard::ForkGuard() : made_in_(generation_.load_relaxed()) {
  static const int error = pthread_atfork(nullptr, nullptr, [] { generation_.fetch_add_relaxed(1); });
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "pthread_atfork");
  }
}

}  // namespace pyecho
