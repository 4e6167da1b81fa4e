// Operations on an item on its way from the slot to the batch (pyecho.ops), as plain data. Program checks them.
//
// An item is a C-contiguous array. Operations stand in this order: kWindow, those of geometry (kCrop to kPad, in any
// order), kCutout, kNormalize, kCast, kToChw. At most one resamples, before kPad; kWindow, kPad and what follows stand
// once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/memory/sizes.hpp"

namespace pyecho::ops {

// The type of an element. kOther (bool, complex numbers, structures) can be moved, but not computed with.
enum class Element : std::uint8_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kOther
};

// An extent that differs from item to item.
inline constexpr std::uint64_t kVariable = std::numeric_limits<std::uint64_t>::max();

struct ArrayType {
  Element element = Element::kUint8;
  std::size_t element_bytes = 1;
  std::vector<std::uint64_t> shape = {};  // kVariable where it differs from item to item

  bool operator==(const ArrayType&) const = default;
  [[nodiscard]] bool is_variable() const noexcept { return std::ranges::find(shape, kVariable) != shape.end(); }
  // Unless it is variable.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_of_array(element_bytes, shape); }
};

enum class Kind : std::uint8_t {
  kWindow,       // of one axis the elements at offsets from a random anchor; numbers, all whole: the first anchor, the
                 // last one, both from the end if negative, the stride between anchors, then the offsets
  kCrop,         // a part of `sizes` at a random place
  kCenterCrop,   // the part of `sizes` in the middle; the first of two middles
  kResizedCrop,  // a random part, resampled to `sizes`; numbers: least and most of the area, least and most ratio w / h
  kResize,       // resampled to `sizes`; one size: that of the shorter of both axes
  kFlip,         // numbers: probability; one axis
  kPad,          // at least `sizes`, the item in the middle (the first of two); numbers: value of the rest
  kCutout,       // a box of `sizes` around a random element, as far as it is inside; numbers: probability, value
  kNormalize,    // numbers: mean of each channel, then standard deviation of each; one pair: of all channels
  kCast,         // to `element`
  kToChw         // the last axis becomes the first
};

struct Operation {
  Kind kind = Kind::kCrop;
  // Selects the random numbers: operations on several leaves that have the same number draw the same ones.
  std::uint32_t draws = 0;
  std::vector<std::uint32_t> axes = {};   // of the item; kResizedCrop, kResize: two axes side by side, rows first
  std::vector<std::uint64_t> sizes = {};  // one for each axis
  std::vector<double> numbers = {};
  bool nearest = false;                 // kResizedCrop, kResize: without interpolation
  Element element = Element::kFloat32;  // kCast
};

}  // namespace pyecho::ops
