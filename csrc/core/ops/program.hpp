// The operations on one leaf, made ready to run on every use of an item: one pass from the slot to the row of a batch.
// Refused, since they need a copy of the item in between: kPad before a resampling, a second kPad or kCutout, and any
// change of the axes behind those resampled. Changes of the last axis before values that depend on the channel go pixel
// by pixel, which is slow.
//
// A kWindow takes anchor order(ordinal mod n) of n, where ordinal is the number of the use among those of its item, and
// order the Permutation of n (core/plan/permutation.hpp) with the seed key_of_item + (draws + 1) * kGoldenGamma and the
// epoch ordinal / n. Elements at offsets beyond the item are its first or last one.
//
// Other random numbers are a function of the key of the use and of Operation::draws only: number i of an operation is
// unit_at(mix64(key + (draws + 1) * kGoldenGamma), i), see core/random.hpp. With u0, u1, ... for these numbers:
//
//   kCrop         the part begins at floor(u_i * (extent - size + 1)) on the i-th of its axes
//   kResizedCrop  attempt a = 0, ..., 9: area = rows * columns * (least + u_4a * (most - least)), ratio =
//                 exp(log(least) + u_4a+1 * (log(most) - log(least))), columns = round(sqrt(area * ratio)), rows =
//                 round(sqrt(area / ratio)), halves to even; the first one that fits begins at row
//                 floor(u_4a+2 * (extent - rows + 1)), column floor(u_4a+3 * (extent - columns + 1)). If none fits: the
//                 largest part in the middle whose ratio is within the bounds.
//   kFlip         if u0 < probability
//   kCutout       if u0 < probability, around floor(u_i+1 * extent) on the i-th of its axes: it begins size / 2 before
//
// Resampling is bilinear with antialiasing: out = sum of w_x * in_x, with a triangle of width max(1, scale) on each
// side of the middle (i + 0.5) * scale - 0.5, clipped at the ends of the part and scaled to a sum of 1. Integers are
// rounded to the nearest and keep their type, also before kNormalize. uint8 is computed with integer weights of 14 bits,
// within one level of the exact result, of Pillow and of torchvision; the others in float32. `nearest`: element
// floor((i + 0.5) * scale). kResize to one size makes the longer axis floor(size * longer / shorter).
//
// kNormalize: x * a + b in float32, a = 1 / (unit * std), b = -mean / std, each rounded to float32, `unit` the largest
// value of an integer type, 1 for floats; the result is float32. kCast rounds to the nearest, ties to even (float64 to
// half precision by way of float32); integers saturate, and NaN becomes 0. Values of kPad and kCutout are in units of the
// item, before kNormalize.
//
// Results are the same bits on every processor, and without resampling those of these formulas. Only the box of
// kResizedCrop may be another one where the C library computes another exp() or log().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ops/operation.hpp"
#include "core/ops/values.hpp"
#include "core/random.hpp"

namespace pyecho::ops {

// Returns the key of a use: its number among those of its stream in this epoch, counted from 0.
[[nodiscard]] constexpr std::uint64_t key_of_use(std::uint64_t stream_seed, std::uint64_t epoch,
                                                 std::uint64_t use) noexcept {
  return mix64(stream_key(stream_seed, epoch, Draws::kOps) + (use + 1) * kGoldenGamma);
}

// Returns the key of an item: its number in its pass of its stream.
[[nodiscard]] constexpr std::uint64_t key_of_item(std::uint64_t stream_seed, std::uint64_t pass,
                                                  std::uint64_t item) noexcept {
  return mix64(stream_key(stream_seed, pass, Draws::kAnchors) + (item + 1) * kGoldenGamma);
}

class Program {
 public:
  // Throws std::invalid_argument, with operation and sizes in its message, if no item of this type can be transformed.
  Program(ArrayType item, std::vector<Operation> operations);

  [[nodiscard]] const ArrayType& item() const noexcept { return item_; }
  // Type of a row. Extents are kVariable where the item's decide.
  [[nodiscard]] const ArrayType& output() const noexcept { return output_; }

  // Returns the kWindow, with which a row depends on the item's pass and on which use of the item it is; null: none.
  [[nodiscard]] const Operation* window() const noexcept {
    return !operations_.empty() && operations_.front().kind == Kind::kWindow ? &operations_.front() : nullptr;
  }

  // Returns why an item of this shape cannot be transformed; "" if it can. Items with variable extents need it before
  // a Transform; others have been checked.
  [[nodiscard]] std::string refusal(std::span<const std::uint64_t> shape) const;
  // Returns the shape of the row of an item of this shape.
  [[nodiscard]] std::vector<std::uint64_t> output_shape(std::span<const std::uint64_t> shape) const;

 private:
  friend class Transform;

  ArrayType item_;
  std::vector<Operation> operations_;
  ArrayType output_;
  Values values_;
  Filling padding_;
  Filling cut_value_;
  std::size_t geometry_ = 0;      // so many of the operations, the first ones
  std::size_t last_touched_ = 0;  // the last axis that is not taken as it is
  bool resamples_ = false;        // rows and columns; columns are that axis
  bool nearest_ = false;
};

}  // namespace pyecho::ops
