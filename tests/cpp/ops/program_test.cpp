#include "core/ops/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/ops/element.hpp"
#include "core/random.hpp"
#include "ops/reference.hpp"

namespace pyecho::ops {
namespace {

constexpr std::array kNumbers{Element::kUint8,   Element::kInt8,     Element::kUint16,  Element::kInt16,
                              Element::kUint32,  Element::kInt32,    Element::kUint64,  Element::kInt64,
                              Element::kFloat16, Element::kBfloat16, Element::kFloat32, Element::kFloat64};

// Items and operations at random.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  std::uint32_t below(std::size_t bound) { return random_.below(static_cast<std::uint32_t>(bound)); }

  Shape shape(std::size_t rank, std::size_t least, std::size_t bound) {
    Shape shape(rank);
    std::ranges::generate(shape, [&] { return least + below(bound - least); });
    return shape;
  }

  // Values that the type holds exactly.
  std::vector<double> values(Element element, std::size_t count) {
    std::vector<double> values(count);
    std::ranges::generate(values, [&] { return static_cast<double>(below(256)); });
    if (element != Element::kUint8) {
      std::ranges::for_each(values, [](double& value) { value = std::floor(value / 2); });
    }
    return values;
  }

  Operation geometry(const Shape& shape) {
    Operation op;
    op.draws = below(5);
    const std::uint32_t choice = below(9);
    op.kind = choice < 7 ? static_cast<Kind>(choice) : choice == 7 ? Kind::kCrop : Kind::kFlip;
    op.nearest = below(4) == 0;
    if (op.kind == Kind::kResizedCrop || op.kind == Kind::kResize) {
      const std::uint32_t first = below(shape.size());
      op.axes = {first, first + 1};
      op.sizes = {1 + below(9), 1 + below(9)};
      if (op.kind == Kind::kResize) {
        op.sizes.resize(1 + below(2));
      } else {
        op.numbers = {0.08, 1, 0.75, 4.0 / 3};
      }
      return op;
    }
    for (std::uint32_t axis = 0; axis < shape.size(); ++axis) {
      if (below(2) == 0) {
        op.axes.push_back(axis);
        op.sizes.push_back(op.kind == Kind::kPad || op.kind == Kind::kCutout ? below(9) : below(shape[axis] + 1));
      }
    }
    if (op.kind == Kind::kFlip) {
      op.axes.resize(1);
      op.sizes.clear();
      op.numbers = {0.5};
    } else if (op.kind == Kind::kPad) {
      op.numbers = {static_cast<double>(below(3))};
    } else if (op.kind == Kind::kCutout) {
      op.numbers = {0.5, static_cast<double>(below(3))};
    }
    return op;
  }

  Operation normalize(std::size_t channels) {
    Operation op{.kind = Kind::kNormalize};
    for (std::size_t i = 0; i < 2 * channels; ++i) {
      op.numbers.push_back(0.2 + 0.01 * below(60));
    }
    return op;
  }

 private:
  Xoshiro256 random_;
};

bool possible(const ArrayType& type, const std::vector<Operation>& operations) {
  try {
    const Program program(type, operations);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

// Appends an operation if a program may have it there.
void append(std::vector<Operation>& operations, const ArrayType& type, const Operation& operation) {
  operations.push_back(operation);
  if (!possible(type, operations)) {
    operations.pop_back();
  }
}

void compare(Generator& random, const ArrayType& type, const std::vector<Operation>& operations, std::uint64_t key) {
  const std::vector<double> values = random.values(type.element, elements_of(type.shape));
  Reference expected(type.element, type.shape, values);
  double tolerance = 0;
  bool resampled = false;
  for (const Operation& op : operations) {
    expected.apply(op, key);
    if ((op.kind == Kind::kResize || op.kind == Kind::kResizedCrop) && !op.nearest) {
      tolerance = type.element < Element::kFloat16 ? 1 : type.element == Element::kFloat32 ? 1e-4 : 1;
      resampled = true;
    } else if (op.kind == Kind::kNormalize) {
      tolerance *= 6 / unit_of(type.element);
    } else if (op.kind == Kind::kCast && resampled) {
      tolerance += op.element < Element::kFloat16 ? 1 : 0.01;
    }
  }
  const Program program(type, operations);
  ASSERT_EQ(program.output().shape, expected.shape);
  ASSERT_EQ(program.output().element, expected.element);
  const Bytes row = run_program(program, key, encoded(values, type.element), type.shape, key % 2 == 0);
  const std::vector<double> came = decoded(row, expected.element);
  ASSERT_EQ(came.size(), expected.values.size());
  for (std::size_t i = 0; i < came.size(); ++i) {
    ASSERT_NEAR(came[i], expected.values[i], tolerance) << "element " << i;
  }
}

TEST(ProgramTest, random_operations_on_random_items_do_what_is_described) {
  std::set<Kind> seen;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const Element element = kNumbers[random.below(kNumbers.size())];
    const ArrayType type{element, bytes_of(element), random.shape(1 + random.below(4), seed % 8 == 0 ? 0 : 1, 10)};
    std::vector<Operation> operations;
    for (std::uint32_t count = random.below(6); count > 0; --count) {
      const Shape shape = Program(type, operations).output().shape;
      append(operations, type, random.geometry(shape));
    }
    if (random.below(2) == 0) {
      const std::uint64_t channels = Program(type, operations).output().shape.back();
      append(operations, type, random.normalize(random.below(2) == 0 ? 1 : channels));
    }
    if (random.below(3) == 0) {
      append(operations, type, {.kind = Kind::kCast, .element = kNumbers[random.below(kNumbers.size())]});
    }
    if (type.shape.size() >= 3 && random.below(2) == 0) {
      append(operations, type, {.kind = Kind::kToChw});
    }
    for (const Operation& operation : operations) {
      seen.insert(operation.kind);
    }
    compare(random, type, operations, seed * 7);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST(ProgramTest, images_of_all_sizes_are_resampled_within_one_level) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    ArrayType type{Element::kUint8, 1, random.shape(3, 1, 200)};
    type.shape[2] = 1 + random.below(5);
    Operation crop{.kind = Kind::kResizedCrop, .axes = {0, 1}, .sizes = random.shape(2, 1, 120)};
    crop.numbers = {0.08, 1, 0.75, 4.0 / 3};
    std::vector<Operation> operations{crop, {.kind = Kind::kFlip, .axes = {1}, .numbers = {0.5}}};
    if (seed % 2 == 0) {
      operations.push_back(random.normalize(type.shape[2]));
      operations.push_back({.kind = Kind::kToChw});
    }
    compare(random, type, operations, seed);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

TEST(ProgramTest, elements_that_are_no_numbers_are_moved) {
  const ArrayType type{Element::kOther, 3, {4, 5, 2}};
  Bytes item(120);
  for (std::size_t i = 0; i < item.size(); ++i) {
    item[i] = static_cast<std::byte>(i + 1);
  }
  const Program program(type, {{.kind = Kind::kFlip, .axes = {1}, .numbers = {1}},
                               {.kind = Kind::kPad, .axes = {0}, .sizes = {6}, .numbers = {0}},
                               {.kind = Kind::kToChw}});
  EXPECT_EQ(program.output().shape, (Shape{2, 6, 5}));
  const Bytes row = run_program(program, 1, item, type.shape);
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t y = 0; y < 6; ++y) {
      for (std::size_t x = 0; x < 15; ++x) {
        const std::size_t from = ((y - 1) * 5 + 4 - x / 3) * 6 + c * 3 + x % 3;
        ASSERT_EQ(row[(c * 6 + y) * 15 + x], y < 1 || y > 4 ? std::byte{0} : item[from]);
      }
    }
  }
}

TEST(ProgramTest, items_of_any_extent_are_checked_one_by_one) {
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

TEST(ProgramTest, impossible_operations_are_refused) {
  const ArrayType image{Element::kUint8, 1, {32, 40, 3}};
  const Operation flip{.kind = Kind::kFlip, .axes = {1}, .numbers = {0.5}};
  const Operation resize{.kind = Kind::kResize, .axes = {0, 1}, .sizes = {8, 8}};
  const Operation normalize{.kind = Kind::kNormalize, .numbers = {0, 1}};
  const auto expect = [&](const std::vector<Operation>& operations, const std::string& message,
                          Element element = Element::kUint8) {
    try {
      const Program program({element, 1, image.shape}, operations);
      ADD_FAILURE() << "not refused: " << message;
    } catch (const std::invalid_argument& refused) {
      EXPECT_EQ(refused.what(), message);
    }
  };
  expect({{.kind = Kind::kCrop, .axes = {0}, .sizes = {33}}}, "RandomCrop needs at least 33 on axis 0, got 32");
  expect({{.kind = Kind::kCenterCrop, .axes = {3}, .sizes = {1}}},
         "CenterCrop needs axes of the item, which has 3, got axis 3");
  expect({{.kind = Kind::kCrop, .axes = {0, 0}, .sizes = {1, 1}}}, "RandomCrop needs different axes, got axis 0 twice");
  expect({{.kind = Kind::kPad, .axes = {0, 1}, .sizes = {1}, .numbers = {0}}},
         "Pad needs a size for each of its axes, got 1 for 2");
  expect({{.kind = Kind::kPad, .axes = {0}, .sizes = {40}, .numbers = {256}}},
         "Pad needs a value that the item's elements can have, got 256");
  const std::string second =
      " needs to be the only one of its kind, got a second one: join them, or leave one to the pipeline before echoing";
  const Operation pad{.kind = Kind::kPad, .axes = {0}, .sizes = {40}, .numbers = {0}};
  const Operation cutout{.kind = Kind::kCutout, .axes = {0}, .sizes = {4}, .numbers = {1, 0}};
  const std::string behind =
      " needs resampled rows and columns with nothing cropped, flipped or padded behind them: leave axes behind axis 1 "
      "to the pipeline before echoing";
  const Operation channels{.kind = Kind::kCenterCrop, .axes = {2}, .sizes = {1}};
  expect({resize, resize}, "Resize" + second);
  expect({pad, pad}, "Pad" + second);
  expect({cutout, cutout}, "Cutout" + second);
  expect({normalize, normalize}, "Normalize" + second);
  expect({pad, resize}, "Resize needs a place before Pad, got one after it: pad the result, or before echoing");
  expect({channels, resize}, "Resize" + behind);
  expect({resize, channels}, "CenterCrop" + behind);
  expect({{.kind = Kind::kResize, .axes = {0, 2}, .sizes = {8, 8}}},
         "Resize needs two axes side by side, rows first, got others");
  expect({resize}, "Resize needs numbers, or no interpolation, got other elements", Element::kOther);
  expect({normalize, flip}, "RandomFlip needs a place before Normalize, got one after it");
  expect({{.kind = Kind::kNormalize, .numbers = {0, 0, 1, 1}}}, "Normalize needs 2 channels on the last axis, got 3");
  expect({{.kind = Kind::kNormalize, .numbers = {0, 0}}}, "Normalize needs standard deviations other than 0, got 0");
  expect({normalize}, "Normalize needs numbers, got elements of another type", Element::kOther);
  expect({{.kind = Kind::kFlip, .axes = {0}, .numbers = {1.5}}}, "RandomFlip needs a probability from 0 to 1, got 1.5");
  EXPECT_THROW(Program({Element::kUint8, 1, Shape(33, 1)}, {}), std::invalid_argument);
  EXPECT_THROW(Program({Element::kUint8, 1, {1ULL << 32, 1ULL << 31}}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace pyecho::ops
