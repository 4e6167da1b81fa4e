// Arithmetic on each element once it is in its place (kNormalize, kCast, kToChw), and the elements of padding, which do
// not come from the item.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "core/ops/operation.hpp"

namespace pyecho::ops {

class Values {
 public:
  // Other operations do not count.
  Values(const ArrayType& item, std::span<const Operation> operations);

  // False if elements are only moved.
  [[nodiscard]] bool any() const noexcept { return normalize_ || cast_ || to_chw_; }
  [[nodiscard]] bool to_chw() const noexcept { return to_chw_; }
  // True if an element's channel matters.
  [[nodiscard]] bool by_channel() const noexcept { return to_chw_ || channels_ > 1; }
  [[nodiscard]] std::size_t scratch_bytes(std::size_t channels) const noexcept;

  // Writes `count` pixels of `channels` elements (one, unless by_channel()) to `row`, which has `pixels`, from pixel
  // `position` on.
  void write(std::byte* row, std::size_t position, std::size_t pixels, const std::byte* from, std::size_t count,
             std::size_t channels, std::byte* scratch, bool stream) const noexcept;

 private:
  void convert(std::byte* to, const std::byte* from, std::size_t count, std::size_t plane, std::byte* scratch,
               bool stream) const noexcept;

  Element from_;
  Element to_;
  std::size_t from_bytes_;
  std::size_t to_bytes_;
  bool normalize_ = false;
  bool cast_ = false;
  bool to_chw_ = false;
  std::size_t channels_ = 1;  // with numbers of their own
  // Factors and offsets for a chunk of pixels; kToChw: for a chunk of each channel.
  std::vector<float> scale_;
  std::vector<float> offset_;
};

// Converts elements, as described in element.hpp. Neither type is kOther.
void convert_elements(Element to_type, std::byte* to, Element from_type, const std::byte* from,
                      std::size_t count) noexcept;

// The value of padding and of cut-out boxes.
class Filling {
 public:
  Filling() = default;
  Filling(Element element, double value) noexcept;

  // Fills `bytes`, which are whole elements and at least one.
  void fill(std::byte* to, std::size_t bytes) const noexcept;

 private:
  std::size_t bytes_ = 1;  // of the value; 1: of any element, for 0
  std::array<std::byte, 8> value_{};
};

}  // namespace pyecho::ops
