// The value of elements that do not come from the item.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "core/ops/element.hpp"
#include "core/ops/operation.hpp"

namespace pyecho::ops {

// Zeros if elements are not numbers.
class Filling {
 public:
  Filling() = default;
  Filling(const ArrayType& type, double value) noexcept : element_bytes_(type.element_bytes) {
    if (type.element != Element::kOther) {
      with_type(type.element, [&]<class T>(std::type_identity<T>) {
        const T element = converted<T>(value);
        std::memcpy(element_.data(), &element, sizeof(T));
        uniform_ = std::all_of(element_.begin(), element_.begin() + sizeof(T),
                               [&](std::byte byte) { return byte == element_[0]; });
      });
    }
  }

  // Fills `bytes`, which are whole elements and at least one.
  void fill(std::byte* to, std::size_t bytes) const noexcept {
    if (uniform_) {
      std::memset(to, static_cast<int>(element_[0]), bytes);
      return;
    }
    std::memcpy(to, element_.data(), element_bytes_);
    for (std::size_t done = element_bytes_; done < bytes; done *= 2) {
      std::memcpy(to + done, to, std::min(done, bytes - done));
    }
  }

 private:
  std::size_t element_bytes_ = 1;
  std::array<std::byte, 8> element_{};
  bool uniform_ = true;  // all bytes are the same
};

}  // namespace pyecho::ops
