// Copies of structs that begin with their size, between callers of this version and of others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "capi/status.hpp"

namespace pyecho::capi {

inline constexpr const char* kNoSize = "struct_bytes is not the size of the struct; begin with its macro ..._INIT";

// Sets as much of a struct as the caller knows. Throws for PYECHO_INVALID if its size cannot be one.
template <class Struct>
void give(Struct* to, std::type_identity_t<Struct> from) {
  check_argument(to != nullptr && to->struct_bytes >= sizeof(std::size_t), kNoSize);
  from.struct_bytes = to->struct_bytes;
  std::memcpy(to, &from, std::min(to->struct_bytes, sizeof(Struct)));
}

// Returns a struct of the caller's; members that it does not know are 0.
template <class Struct>
[[nodiscard]] Struct taken(const Struct* from) noexcept {
  Struct copy{};
  std::memcpy(&copy, from, std::min(from->struct_bytes, sizeof(Struct)));
  return copy;
}

}  // namespace pyecho::capi
