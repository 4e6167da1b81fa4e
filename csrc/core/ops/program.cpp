#include "core/ops/program.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "core/ops/checks.hpp"

namespace pyecho::ops {
namespace {

constexpr std::array<std::uint64_t, 1> kScalar{1};

// An item without axes is computed like one element on one axis.
std::span<const std::uint64_t> with_axes(std::span<const std::uint64_t> shape) noexcept {
  return shape.empty() ? std::span<const std::uint64_t>(kScalar) : shape;
}

std::size_t bytes_of(std::span<const std::uint64_t> shape, std::size_t element_bytes) noexcept {
  std::size_t bytes = element_bytes;
  for (const std::uint64_t extent : shape) {
    bytes *= extent;
  }
  return (bytes + 63) / 64 * 64;
}

// The shapes between passes.
class Shapes {
 public:
  explicit Shapes(std::span<const std::uint64_t> shape) noexcept : rank_(shape.size()) {
    std::ranges::copy(shape, now_.begin());
  }
  [[nodiscard]] std::span<const std::uint64_t> now() const noexcept { return std::span(now_).first(rank_); }
  void pass(const Pass& pass) noexcept {
    const std::array<std::uint64_t, kMaxAxes> before = now_;
    pass.output_shape(std::span(before).first(rank_), std::span(now_).first(rank_));
  }

 private:
  std::size_t rank_;
  std::array<std::uint64_t, kMaxAxes> now_{};
};

}  // namespace

Program::Program(ArrayType item, std::vector<Operation> operations)
    : item_(std::move(item)), operations_(std::move(operations)), output_(checked_output(item_, operations_)) {
  ArrayType type = item_;
  type.shape.assign(with_axes(item_.shape).begin(), with_axes(item_.shape).end());
  std::span<const Operation> left = operations_;
  do {
    left = left.subspan(passes_.emplace_back(type, left).length());
  } while (!left.empty());
}

std::string Program::refusal(std::span<const std::uint64_t> shape) const {
  ArrayType type = item_;
  if (shape.size() != type.shape.size()) {
    return "items have " + std::to_string(type.shape.size()) + " axes, got one with " + std::to_string(shape.size());
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (std::exchange(type.shape[i], shape[i]) != shape[i] && item_.shape[i] != kVariable) {
      return "items have " + std::to_string(item_.shape[i]) + " on axis " + std::to_string(i) + ", got one with " +
             std::to_string(shape[i]);
    }
  }
  try {
    checked_output(std::move(type), operations_);
  } catch (const std::invalid_argument& refused) {
    return refused.what();
  }
  return {};
}

std::vector<std::uint64_t> Program::output_shape(std::span<const std::uint64_t> shape) const {
  return checked_output({item_.element, item_.element_bytes, {shape.begin(), shape.end()}}, operations_).shape;
}

std::size_t Program::scratch_bytes(std::span<const std::uint64_t> shape) const {
  Shapes shapes(with_axes(shape));
  std::size_t between = 0;
  std::size_t most = 0;
  for (const Pass& pass : passes_) {
    most = std::max(most, pass.scratch_bytes(shapes.now()));
    shapes.pass(pass);
    between += &pass == &passes_.back() ? 0 : bytes_of(shapes.now(), item_.element_bytes);
  }
  return between + most;
}

void Program::run(std::uint64_t key, const std::byte* item, std::span<const std::uint64_t> shape, std::byte* row,
                  std::byte* scratch, bool stream) const noexcept {
  if (passes_.size() == 1) {
    passes_.front().run(key, item, with_axes(shape), row, scratch, stream);
    return;
  }
  Shapes shapes(with_axes(shape));
  for (const Pass& pass : passes_) {
    Shapes after = shapes;
    after.pass(pass);
    const bool last = &pass == &passes_.back();
    std::byte* const to = last ? row : scratch;
    scratch += last ? 0 : bytes_of(after.now(), item_.element_bytes);
    pass.run(key, item, shapes.now(), to, scratch, last && stream);
    item = to;
    shapes = after;
  }
}

}  // namespace pyecho::ops
