// One pass over an item: operations of geometry that can be made at once, then those on values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ops/filling.hpp"
#include "core/ops/geometry.hpp"
#include "core/ops/operation.hpp"
#include "core/ops/values.hpp"

namespace pyecho::ops {

class Pass {
 public:
  // The operations from the first of `operations` on that fit into one pass, at least one if there are any.
  Pass(const ArrayType& item, std::span<const Operation> operations);

  // How many operations it took.
  [[nodiscard]] std::size_t length() const noexcept { return length_; }
  // Same as those of Program.
  void output_shape(std::span<const std::uint64_t> shape, std::span<std::uint64_t> output) const noexcept;
  [[nodiscard]] std::size_t scratch_bytes(std::span<const std::uint64_t> shape) const noexcept;
  void run(std::uint64_t key, const std::byte* item, std::span<const std::uint64_t> shape, std::byte* row,
           std::byte* scratch, bool stream) const noexcept;

 private:
  friend class PassRun;

  // Returns how many operations of geometry fit.
  std::size_t take_geometry(std::span<const Operation> operations);
  [[nodiscard]] std::size_t line_axis(std::size_t rank) const noexcept;

  ArrayType item_;
  std::size_t length_ = 0;
  std::vector<Operation> geometry_;
  Values values_;
  std::uint32_t touched_ = 0;  // bit i: axis i is not taken as it is
  int columns_ = -1;           // the second axis that is resampled
  bool nearest_ = false;
  Filling padding_;
  Filling cut_value_;
};

}  // namespace pyecho::ops
