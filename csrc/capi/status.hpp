// Results of the C interface: codes, messages, and exceptions turned into codes.
#pragma once

#include <type_traits>

#include "core/sync/outcome.hpp"
#include "pyecho/pyecho.h"

namespace pyecho::capi {

// Sets what last_error() returns in this thread, and returns `status`.
pyecho_status set_error(pyecho_status status, const char* message) noexcept;
[[nodiscard]] const char* last_error() noexcept;
[[nodiscard]] const char* status_string(pyecho_status status) noexcept;

// Throw unless `holds`: a wrong argument is PYECHO_INVALID, a call out of place PYECHO_MISUSE.
void check_argument(bool holds, const char* message);
void check_call(bool holds, const char* message);

[[nodiscard]] pyecho_status status_of(Outcome outcome) noexcept;
[[nodiscard]] inline pyecho_status status_of(pyecho_status status) noexcept { return status; }
// Returns the code of the exception that is being handled.
[[nodiscard]] pyecho_status status_of_exception() noexcept;

// Calls `body`, which returns a status, an Outcome, or nothing if it is done.
template <class Body>
[[nodiscard]] pyecho_status guarded(const Body& body) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
      body();
      return PYECHO_OK;
    } else {
      return status_of(body());
    }
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace pyecho::capi
