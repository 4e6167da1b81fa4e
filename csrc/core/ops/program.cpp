#include "core/ops/program.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/ops/geometry.hpp"

namespace pyecho::ops {

Program::Program(ArrayType item, std::vector<Operation> operations)
    : item_(std::move(item)),
      operations_(std::move(operations)),
      output_(checked_output(item_, operations_)),
      values_(item_, operations_) {
  for (const Operation& operation : operations_) {
    if (operation.kind >= Kind::kNormalize) {
      break;
    }
    ++geometry_;
    for (const std::uint32_t axis : operation.axes) {
      last_touched_ = std::max<std::size_t>(last_touched_, axis);
    }
    if (resamples(operation.kind)) {
      resamples_ = true;
      nearest_ = operation.nearest;
    } else if (operation.kind == Kind::kPad) {
      padding_ = Filling(item_.element, operation.numbers[0]);
    } else if (operation.kind == Kind::kCutout) {
      cut_value_ = Filling(item_.element, operation.numbers[1]);
    }
  }
}

std::string Program::refusal(std::span<const std::uint64_t> shape) const {
  if (shape.size() != item_.shape.size()) {
    return "items have " + std::to_string(item_.shape.size()) + " axes, got one with " + std::to_string(shape.size());
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != item_.shape[i] && item_.shape[i] != kVariable) {
      return "items have " + std::to_string(item_.shape[i]) + " on axis " + std::to_string(i) + ", got one with " +
             std::to_string(shape[i]);
    }
  }
  try {
    static_cast<void>(output_shape(shape));
  } catch (const std::invalid_argument& refused) {
    return refused.what();
  }
  return {};
}

std::vector<std::uint64_t> Program::output_shape(std::span<const std::uint64_t> shape) const {
  return checked_output({item_.element, item_.element_bytes, {shape.begin(), shape.end()}}, operations_).shape;
}

}  // namespace pyecho::ops
