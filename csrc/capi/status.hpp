// Results of the C interface (codes, messages, and exceptions turned into codes), and structs that begin with their size,
// exchanged with callers of this version and of others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
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

// ---------------------------------------------------------------- structs

// Throws for PYECHO_INVALID unless a struct of some version with the first `least` bytes may have this size.
inline void check_size(std::size_t struct_bytes, std::size_t least) {
  constexpr std::size_t kMost = 4096;  // so that a size that was never set is not taken for one
  if (struct_bytes < least || struct_bytes > kMost || struct_bytes % sizeof(std::size_t) != 0) {
    throw std::invalid_argument("struct_bytes must be the size of the struct, a multiple of 8, got " +
                                std::to_string(struct_bytes) + "; begin with its macro ..._INIT");
  }
}

// Sets as much of a struct as the caller knows. Throws for PYECHO_INVALID.
template <class Struct>
void give(Struct* to, std::type_identity_t<Struct> from) {
  check_argument(to != nullptr, "the address of a struct is needed, got NULL");
  check_size(to->struct_bytes, sizeof(std::size_t));
  from.struct_bytes = to->struct_bytes;
  std::memcpy(to, &from, std::min(to->struct_bytes, sizeof(Struct)));
}

// Returns a struct of the caller's; members that it does not know are 0. Throws for PYECHO_INVALID if it has other than
// 0 in members that this library does not know.
template <class Struct>
[[nodiscard]] Struct taken(const Struct* from, std::size_t least) {
  check_size(from->struct_bytes, least);
  const std::size_t known = std::min(from->struct_bytes, sizeof(Struct));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  check_argument(std::all_of(bytes + known, bytes + from->struct_bytes, [](unsigned char byte) { return byte == 0; }),
                 "an option is set that this pyecho (" PYECHO_VERSION
                 ") does not know; leave it 0, or run with the pyecho whose header the program was compiled with");
  Struct copy{};
  std::memcpy(&copy, from, known);
  return copy;
}

}  // namespace pyecho::capi
