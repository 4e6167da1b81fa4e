// What is computed from each element once it is in its place: kNormalize, kCast, kToChw.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/ops/operation.hpp"

namespace pyecho::ops {

class Values {
 public:
  Values(const ArrayType& item, std::span<const Operation> operations);

  // False if elements are only moved.
  [[nodiscard]] bool any() const noexcept { return normalize_ || cast_ || to_chw_; }
  [[nodiscard]] bool to_chw() const noexcept { return to_chw_; }
  // True if an element's channel matters.
  [[nodiscard]] bool by_channel() const noexcept { return to_chw_ || channels_ > 1; }
  [[nodiscard]] std::size_t scratch_bytes(std::size_t channels) const noexcept;

  // Pixel `position` of a row with `pixels` in all.
  struct Place {
    std::byte* row;
    std::size_t position;
    std::size_t pixels;
  };
  // Writes `count` pixels of `channels` elements to their place.
  void write(const Place& place, const std::byte* from, std::size_t count, std::size_t channels,
             std::byte* scratch) const noexcept;

 private:
  [[nodiscard]] std::size_t chunk_pixels(std::size_t channels) const noexcept;
  void convert(std::byte* to, const std::byte* from, std::size_t count, std::size_t channel,
               float* scratch) const noexcept;

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

}  // namespace pyecho::ops
