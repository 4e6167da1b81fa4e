// Programs with just the memory that they ask for, under sanitizers: tests/ops says what the rows are.
#include "core/ops/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/ops/transform.hpp"
#include "core/random.hpp"

namespace pyecho::ops {
namespace {

using Shape = std::vector<std::uint64_t>;
using Bytes = std::vector<std::byte>;

struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{64}); }
};

std::uint64_t elements_of(const Shape& shape) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) {
    elements *= extent;
  }
  return elements;
}

// Items and operations at random.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t bound) { return random_.below(static_cast<std::uint32_t>(bound)); }

  ArrayType item() {
    constexpr std::array<std::size_t, 13> kBytes{1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 3};
    const std::uint64_t element = below(kBytes.size());
    ArrayType type{.element = static_cast<Element>(element), .element_bytes = kBytes.at(element)};
    type.shape.resize(1 + below(4));
    std::ranges::generate(type.shape, [&] { return below(8) == 0 ? 0 : 1 + below(9); });
    type.shape[below(type.shape.size())] *= 1 + below(20);
    return type;
  }

  Operation operation(const Shape& shape) {
    Operation op{.kind = static_cast<Kind>(below(11)), .draws = static_cast<std::uint32_t>(below(5))};
    op.nearest = below(4) == 0;
    op.element = static_cast<Element>(below(12));
    const bool resamples = op.kind == Kind::kResizedCrop || op.kind == Kind::kResize;
    const auto first = static_cast<std::uint32_t>(below(shape.size()));
    for (std::uint32_t axis = 0; axis < shape.size(); ++axis) {
      const bool taken = resamples ? axis == first || axis == first + 1
                                   : op.kind < Kind::kNormalize && (axis == first || below(2) == 0);
      if (taken) {
        op.axes.push_back(axis);
        op.sizes.push_back(op.kind < Kind::kResizedCrop ? below(shape[axis] + 1) : 1 + below(resamples ? 60 : 12));
      }
    }
    switch (op.kind) {
      case Kind::kWindow:
        op.axes.resize(1);
        op.sizes.clear();
        op.numbers = {below(2) == 0 ? 0.0 : -1.0, -1, 1 + static_cast<double>(below(3))};
        for (std::uint64_t count = 1 + below(5); count > 0; --count) {
          op.numbers.push_back(static_cast<double>(below(9)) - 4);
        }
        break;
      case Kind::kResizedCrop:
        op.numbers = {0.08, 1, 0.75, 4.0 / 3};
        break;
      case Kind::kFlip:
        op.axes.resize(1);
        op.sizes.clear();
        op.numbers = {0.5};
        break;
      case Kind::kPad:
        op.numbers = {1};
        break;
      case Kind::kCutout:
        op.numbers = {0.5, 1};
        break;
      case Kind::kNormalize:
        op.numbers.assign(below(2) == 0 ? 2 : 2 * shape.back(), 0.5);
        break;
      default:
        break;
    }
    return op;
  }

 private:
  Xoshiro256 random_;
};

TEST(Program, random_operations_on_random_items_stay_within_their_memory) {
  std::set<Kind> seen;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE(seed);
    Generator random(seed);
    const ArrayType type = random.item();
    std::vector<Operation> operations;
    for (std::uint64_t count = random.below(9); count > 0; --count) {
      operations.push_back(random.operation(Program(type, operations).output().shape));
      try {
        static_cast<void>(Program(type, operations));
      } catch (const std::invalid_argument&) {
        operations.pop_back();
      }
    }
    const Program program(type, operations);
    const ArrayType& output = program.output();
    ASSERT_EQ(program.output_shape(type.shape), output.shape);
    const Bytes item(elements_of(type.shape) * type.element_bytes, std::byte{60});
    const auto row_of = [&](std::byte before) {
      Transform transform(program, {.use = seed, .item = seed, .ordinal = seed % 5}, type.shape);
      Bytes row(elements_of(output.shape) * output.element_bytes, before);
      EXPECT_EQ(transform.row_bytes(), row.size());
      Shape shape(output.shape.size());
      transform.write_shape(reinterpret_cast<std::byte*>(shape.data()));
      EXPECT_EQ(shape, output.shape);
      const std::unique_ptr<std::byte, FreeAligned> scratch(
          static_cast<std::byte*>(::operator new(transform.scratch_bytes(), std::align_val_t{64})));
      transform.write(item.data(), row.data(), scratch.get(), seed % 2 == 0);
      return row;
    };
    ASSERT_EQ(row_of(std::byte{0}), row_of(std::byte{255})) << "every byte is written";
    for (const Operation& operation : operations) {
      seen.insert(operation.kind);
    }
  }
  EXPECT_EQ(seen.size(), 11U);
}

TEST(Program, items_of_any_extent_are_checked_one_by_one) {
  const Program program(
      {Element::kUint8, 1, {kVariable, kVariable, 3}},
      {{.kind = Kind::kResize, .axes = {0, 1}, .sizes = {8}}, {.kind = Kind::kCrop, .axes = {0}, .sizes = {8}}});
  EXPECT_EQ(program.output().shape, (Shape{8, kVariable, 3}));
  EXPECT_EQ(program.refusal(Shape{16, 20, 3}), "");
  EXPECT_EQ(program.output_shape(Shape{16, 20, 3}), (Shape{8, 10, 3}));
  EXPECT_EQ(program.refusal(Shape{16, 0, 3}), "Resize needs from 1 to 2^31 - 1 rows and columns, got 0");
  EXPECT_EQ(program.refusal(Shape{16, 20, 4}), "items have 3 on axis 2, got one with 4");
  EXPECT_EQ(program.refusal(Shape{16, 20}), "items have 3 axes, got one with 2");
}

// Python refuses these before they come here.
TEST(Program, what_cannot_be_is_refused) {
  for (const Operation& wrong : {Operation{.kind = Kind::kCenterCrop, .axes = {3}, .sizes = {1}},
                                 {.kind = Kind::kCrop, .axes = {0, 0}, .sizes = {1, 1}},
                                 {.kind = Kind::kPad, .axes = {0, 1}, .sizes = {1}, .numbers = {0}},
                                 {.kind = Kind::kFlip, .axes = {0}, .numbers = {1.5}},
                                 {.kind = Kind::kNormalize, .numbers = {0, 0}}}) {
    EXPECT_THROW(Program({Element::kUint8, 1, {32, 40, 3}}, {wrong}), std::invalid_argument);
  }
  EXPECT_THROW(Program({Element::kUint8, 1, Shape(33, 1)}, {}), std::invalid_argument);
  EXPECT_THROW(Program({Element::kUint8, 1, {1ULL << 32, 1ULL << 31}}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace pyecho::ops
