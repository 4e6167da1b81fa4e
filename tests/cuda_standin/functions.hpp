// The table of all driver functions of the stand-in: those of pyecho and the extra ones.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "cuda/driver_api.hpp"
#include "extra_api.hpp"

namespace pyecho::standin {

inline constexpr std::size_t kFunctionCount = std::size(cuda::kSymbols) + std::size(kExtraSymbols);

constexpr const cuda::Symbol& symbol_at(std::size_t index) {
  return index < std::size(cuda::kSymbols) ? cuda::kSymbols[index] : kExtraSymbols[index - std::size(cuda::kSymbols)];
}

// kFunctionCount if there is none of that name.
constexpr std::size_t index_of(std::string_view name) {
  std::size_t index = 0;
  while (index < kFunctionCount && symbol_at(index).name != name) {
    ++index;
  }
  return index;
}

// A driver function, given by its name; that there is one is checked when this is compiled.
class FunctionId {
 public:
  consteval FunctionId(const char* name) : index_(index_of(name)) {
    if (index_ == kFunctionCount) {
      throw "no such driver function";
    }
  }

  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  [[nodiscard]] std::string_view name() const noexcept { return symbol_at(index_).name; }

 private:
  std::size_t index_;
};

}  // namespace pyecho::standin
