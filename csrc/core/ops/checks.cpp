#include "core/ops/checks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "core/ops/element.hpp"

namespace pyecho::ops {
namespace {

// Indices and sizes in bytes are computed in 64 bits with a sign.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;

// Taps count rows and columns in 32 bits.
constexpr std::uint64_t kMaxResampled = std::uint64_t{1} << 31;

// In the order of Kind.
constexpr std::array<const char*, 10> kNames{"RandomCrop", "CenterCrop", "RandomResizedCrop", "Resize", "RandomFlip",
                                             "Pad",        "Cutout",     "Normalize",         "Cast",   "ToCHW"};
constexpr std::array<const char*, 13> kElements{"uint8", "int8",    "uint16",   "int16",   "uint32",  "int32", "uint64",
                                                "int64", "float16", "bfloat16", "float32", "float64", "other"};

template <class T>
const char* name_of(T value, const auto& names) {
  return names[static_cast<std::size_t>(value)];
}

std::string shown(const auto& value) { return std::to_string(value); }
std::string shown(const char* text) { return text; }
std::string shown(const std::string& text) { return text; }
std::string shown(const std::vector<std::uint32_t>& axes) {
  std::string result;
  for (const std::uint32_t axis : axes) {
    result += (result.empty() ? "(" : ", ") + std::to_string(axis);
  }
  return result.empty() ? "()" : result + ")";
}

// Walks through the operations with the type between them.
class Walk {
 public:
  explicit Walk(ArrayType& type) : type_(type) {}

  void step(const Operation& operation) {
    operation_ = &operation;
    check_order();
    check_axes();
    check_sizes();
    apply();
    last_ = operation.kind;
  }

 private:
  [[noreturn]] void refuse(const std::string& needed, const auto& came) const {
    throw std::invalid_argument(std::string(name_of(operation_->kind, kNames)) + " needs " + needed + ", got " +
                                shown(came));
  }

  // Operations of geometry come first, in any order; of those after kCutout, there is one at most.
  void check_order() const {
    const auto rank = [](Kind kind) { return std::max(kind, Kind::kPad); };
    if (rank(operation_->kind) < rank(last_)) {
      refuse(std::string("a place before ") + name_of(last_, kNames), "one after it");
    }
    if (operation_->kind == last_ && last_ > Kind::kCutout) {
      refuse("only one", "a second one");
    }
  }

  void check_axes() const {
    const std::vector<std::uint32_t>& axes = operation_->axes;
    for (auto axis = axes.begin(); axis != axes.end(); ++axis) {
      if (*axis >= type_.shape.size()) {
        refuse("axes of the item, which has " + shown(type_.shape.size()), "axis " + shown(*axis));
      }
      if (std::find(axes.begin(), axis, *axis) != axis) {
        refuse("different axes", "axis " + shown(*axis) + " twice");
      }
    }
  }

  void check_sizes() const {
    const std::size_t count = operation_->sizes.size();
    const bool sized = operation_->kind < Kind::kNormalize && operation_->kind != Kind::kFlip;
    const bool shorter = operation_->kind == Kind::kResize && count == 1;
    if (count != (sized ? operation_->axes.size() : 0) && !shorter) {
      refuse("a size for each of its axes", shown(count) + " for " + shown(operation_->axes.size()));
    }
    for (const std::uint64_t size : operation_->sizes) {
      if (size >= kMaxBytes) {
        refuse("sizes that fit the address space", size);
      }
    }
  }

  void apply() {
    switch (operation_->kind) {
      case Kind::kCrop:
      case Kind::kCenterCrop:
        crop();
        break;
      case Kind::kResizedCrop:
        check_ranges();
        resample();
        break;
      case Kind::kResize:
        resample();
        break;
      case Kind::kFlip:
        if (operation_->axes.size() != 1) {
          refuse("one axis", operation_->axes.size());
        }
        check_probability();
        break;
      case Kind::kPad:
        check_value(0);
        for (std::size_t i = 0; i < operation_->axes.size(); ++i) {
          std::uint64_t& extent = type_.shape[operation_->axes[i]];
          extent = std::max(extent, operation_->sizes[i]);
        }
        break;
      case Kind::kCutout:
        check_probability();
        check_value(1);
        break;
      case Kind::kNormalize:
        normalize();
        break;
      case Kind::kCast:
        if (operation_->element == Element::kOther) {
          refuse("a type of numbers", "another");
        }
        compute_with(operation_->element);
        break;
      case Kind::kToChw:
        if (type_.shape.empty()) {
          refuse("an item with axes", "one without");
        }
        std::ranges::rotate(type_.shape, type_.shape.end() - 1);
        break;
    }
  }

  void crop() {
    for (std::size_t i = 0; i < operation_->axes.size(); ++i) {
      std::uint64_t& extent = type_.shape[operation_->axes[i]];
      if (operation_->sizes[i] > extent) {
        refuse("at least " + shown(operation_->sizes[i]) + " on axis " + shown(operation_->axes[i]), extent);
      }
      extent = operation_->sizes[i];
    }
  }

  void resample() {
    const std::vector<std::uint32_t>& axes = operation_->axes;
    if (axes.size() != 2 || axes[1] != axes[0] + 1) {
      refuse("two axes side by side, rows first", axes);
    }
    if (resampled_) {
      refuse("items that are not resampled before", "a second resampling");
    }
    resampled_ = true;
    if (!operation_->nearest && type_.element == Element::kOther) {
      refuse("numbers, or no interpolation", "other elements");
    }
    std::uint64_t& rows = type_.shape[axes[0]];
    std::uint64_t& columns = type_.shape[axes[1]];
    for (const std::uint64_t extent : {rows, columns, operation_->sizes.front(), operation_->sizes.back()}) {
      if (extent == 0 || (extent >= kMaxResampled && extent != kVariable)) {
        refuse("from 1 to 2^31 - 1 rows and columns", extent);
      }
    }
    const bool known = (rows != kVariable && columns != kVariable) || operation_->sizes.size() == 2;
    const Sizes sizes = known ? resampled_sizes(*operation_, rows, columns) : Sizes{kVariable, kVariable};
    rows = sizes.rows;
    columns = sizes.columns;
  }

  void check_ranges() const {
    need_numbers(4);
    const std::vector<double>& numbers = operation_->numbers;
    if (!(numbers[0] > 0 && numbers[0] <= numbers[1] && numbers[1] <= 1)) {
      refuse("areas above 0 and up to 1, the least first", shown(numbers[0]) + " and " + shown(numbers[1]));
    }
    if (!(numbers[2] > 0 && numbers[2] <= numbers[3] && std::isfinite(numbers[3]))) {
      refuse("finite ratios above 0, the least first", shown(numbers[2]) + " and " + shown(numbers[3]));
    }
  }

  void normalize() {
    const std::vector<double>& numbers = operation_->numbers;
    const std::size_t channels = numbers.size() / 2;
    if (channels == 0 || numbers.size() % 2 != 0) {
      refuse("a mean and a standard deviation for each channel", shown(numbers.size()) + " numbers");
    }
    const std::uint64_t last = type_.shape.empty() ? 1 : type_.shape.back();
    if (channels > 1 && last != channels && last != kVariable) {
      refuse(shown(channels) + " channels on the last axis", last);
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (!std::isfinite(numbers[i]) || (i >= channels && numbers[i] == 0)) {
        refuse(i < channels ? "finite means" : "finite standard deviations other than 0", numbers[i]);
      }
    }
    compute_with(Element::kFloat32);
  }

  void need_numbers(std::size_t count) const {
    if (operation_->numbers.size() != count) {
      refuse(shown(count) + " numbers", operation_->numbers.size());
    }
  }

  void check_probability() const {
    need_numbers(operation_->kind == Kind::kCutout ? 2 : 1);
    if (const double value = operation_->numbers[0]; !(value >= 0 && value <= 1)) {
      refuse("a probability from 0 to 1", value);
    }
  }

  // The value of elements that do not come from the item.
  void check_value(std::size_t i) const {
    need_numbers(i + 1);
    const double value = operation_->numbers[i];
    if (type_.element == Element::kOther) {
      if (value != 0) {
        refuse("the value 0 for elements that are not numbers", value);
      }
      return;
    }
    const bool exact = with_type(type_.element, [&]<class T>(std::type_identity<T>) {
      return !std::is_integral_v<T> || converted<double>(converted<T>(value)) == value;
    });
    if (!exact) {
      refuse(std::string("a value of ") + name_of(type_.element, kElements), value);
    }
  }

  void compute_with(Element element) {
    if (type_.element == Element::kOther) {
      refuse("numbers", "elements of another type");
    }
    type_.element = element;
    type_.element_bytes = with_type(element, []<class T>(std::type_identity<T>) { return sizeof(T); });
  }

  ArrayType& type_;
  const Operation* operation_ = nullptr;
  Kind last_ = Kind::kCrop;
  bool resampled_ = false;
};

void check_bytes(const ArrayType& type) {
  std::uint64_t bytes = type.element_bytes;
  for (const std::uint64_t extent : type.shape) {
    if (extent != kVariable && extent != 0 && bytes > kMaxBytes / extent) {
      throw std::invalid_argument("items of this size do not fit the address space");
    }
    bytes *= extent == kVariable ? 1 : extent;
  }
}

}  // namespace

Sizes resampled_sizes(const Operation& operation, std::uint64_t rows, std::uint64_t columns) noexcept {
  const std::uint64_t first = operation.sizes[0];
  if (operation.sizes.size() == 2) {
    return {first, operation.sizes[1]};
  }
  const auto longer = [&](std::uint64_t other, std::uint64_t shorter) {
    return static_cast<std::uint64_t>(static_cast<double>(first) * static_cast<double>(other) /
                                      static_cast<double>(shorter));
  };
  return rows <= columns ? Sizes{first, longer(columns, rows)} : Sizes{longer(rows, columns), first};
}

ArrayType checked_output(ArrayType item, std::span<const Operation> operations) {
  if (item.shape.size() > kMaxAxes) {
    throw std::invalid_argument("operations need items of at most " + std::to_string(kMaxAxes) + " axes, got " +
                                std::to_string(item.shape.size()));
  }
  check_bytes(item);
  Walk walk(item);
  for (const Operation& operation : operations) {
    walk.step(operation);
    check_bytes(item);
  }
  return item;
}

}  // namespace pyecho::ops
