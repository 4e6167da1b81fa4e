#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/ops/element.hpp"
#include "core/ops/geometry.hpp"

namespace pyecho::ops {
namespace {

// Indices and sizes in bytes are computed in 64 bits with a sign.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;

// Anchors and offsets, too.
constexpr double kMaxOffset = 0x1p40;

// Weights of rows and columns are counted in 32 bits.
constexpr std::uint64_t kMaxResampled = std::uint64_t{1} << 31;

// In the order of Kind: names, and how many numbers; kNormalize counts its own.
constexpr std::array kNames{"Window",    "RandomCrop", "CenterCrop", "RandomResizedCrop",
                            "Resize",    "RandomFlip", "Pad",        "Cutout",
                            "Normalize", "Cast",       "ToCHW"};
constexpr std::array<std::size_t, 11> kNumberCounts{0, 0, 0, 4, 0, 1, 1, 2, 0, 0, 0};

// Walks through the operations with the type between them.
class Walk {
 public:
  explicit Walk(ArrayType& type) : type_(type) {}

  void step(const Operation& operation) {
    operation_ = &operation;
    check_place();
    check_axes();
    check_numbers();
    apply();
    if (columns_ >= 0 && touched_ >> (columns_ + 1) != 0) {
      refuse("resampled rows and columns with nothing cropped, flipped or padded behind them: leave axes behind axis ",
             columns_, " to the pipeline before echoing");
    }
    last_ = std::max(last_, operation.kind);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    std::ostringstream text;
    text << kNames[static_cast<std::size_t>(operation_->kind)] << " needs ";
    (text << ... << parts);
    throw std::invalid_argument(text.str());
  }
  template <class... Parts>
  void need(bool met, const Parts&... parts) const {
    if (!met) {
      refuse(parts...);
    }
  }

  // Operations of geometry come first, in any order. What would need a copy of the item in between is refused.
  void check_place() {
    const Kind kind = operation_->kind;
    need(std::max(kind, Kind::kPad) >= std::max(last_, Kind::kPad), "a place before ",
         kNames[static_cast<std::size_t>(last_)], ", got one after it");
    const std::uint32_t bit = 1U << static_cast<unsigned>(resamples(kind) ? Kind::kResize : kind);
    need(kind != Kind::kWindow || seen_ == 0, "to be the first operation on its leaf");
    need((seen_ & bit) == 0 || (kind < Kind::kPad && !resamples(kind)),
         "to be the only one of its kind, got a second one: join them, or leave one to the pipeline before echoing");
    need(!resamples(kind) || (seen_ & 1U << static_cast<unsigned>(Kind::kPad)) == 0,
         "a place before Pad, got one after it: pad the result, or before echoing");
    seen_ |= bit;
  }

  void check_axes() {
    const auto& [axes, sizes] = std::tie(operation_->axes, operation_->sizes);
    std::uint64_t used = 0;
    for (const std::uint32_t axis : axes) {
      need(axis < type_.shape.size(), "axes of the item, which has ", type_.shape.size(), ", got axis ", axis);
      need((used & std::uint64_t{1} << axis) == 0, "different axes, got axis ", axis, " twice");
      used |= std::uint64_t{1} << axis;
    }
    touched_ |= used;
    const bool sized =
        operation_->kind > Kind::kWindow && operation_->kind < Kind::kNormalize && operation_->kind != Kind::kFlip;
    const bool shorter = operation_->kind == Kind::kResize && sizes.size() == 1;
    need(sizes.size() == (sized ? axes.size() : 0) || shorter, "a size for each of its axes, got ", sizes.size(),
         " for ", axes.size());
    for (const std::uint64_t size : sizes) {
      need(size < kMaxBytes, "sizes that fit the address space, got ", size);
    }
  }

  void check_numbers() const {
    const Kind kind = operation_->kind;
    const std::vector<double>& numbers = operation_->numbers;
    const std::size_t count = kNumberCounts[static_cast<std::size_t>(kind)];
    need(count == 0 || numbers.size() == count, count, " numbers, got ", numbers.size());
    if (kind == Kind::kFlip || kind == Kind::kCutout) {
      need(numbers[0] >= 0 && numbers[0] <= 1, "a probability from 0 to 1, got ", numbers[0]);
    }
    if (kind == Kind::kPad || kind == Kind::kCutout) {
      need(holds(numbers[count - 1]), "a value that the item's elements can have, got ", numbers[count - 1]);
    }
    if (kind == Kind::kResizedCrop) {
      need(numbers[0] > 0 && numbers[0] <= numbers[1] && numbers[1] <= 1,
           "areas above 0 and up to 1, the least first, got ", numbers[0], " and ", numbers[1]);
      need(numbers[2] > 0 && numbers[2] <= numbers[3] && std::isfinite(numbers[3]),
           "finite ratios above 0, the least first, got ", numbers[2], " and ", numbers[3]);
    }
  }

  // Floats hold every value, rounded; elements that are not numbers only 0.
  [[nodiscard]] bool holds(double value) const {
    if (type_.element == Element::kOther) {
      return value == 0;
    }
    return with_type(type_.element, [&]<class T>(std::type_identity<T>) {
      return !std::is_integral_v<T> || converted<double>(converted<T>(value)) == value;
    });
  }

  void apply() {
    const auto& [axes, sizes] = std::tie(operation_->axes, operation_->sizes);
    switch (operation_->kind) {
      case Kind::kWindow:
        take_window();
        break;
      case Kind::kCrop:
      case Kind::kCenterCrop:
        for (std::size_t i = 0; i < axes.size(); ++i) {
          std::uint64_t& extent = type_.shape[axes[i]];
          need(sizes[i] <= extent, "at least ", sizes[i], " on axis ", axes[i], ", got ", extent);
          extent = sizes[i];
        }
        break;
      case Kind::kResizedCrop:
      case Kind::kResize:
        resample();
        break;
      case Kind::kFlip:
        need(axes.size() == 1, "one axis, got ", axes.size());
        break;
      case Kind::kPad:
        for (std::size_t i = 0; i < axes.size(); ++i) {
          type_.shape[axes[i]] = std::max(type_.shape[axes[i]], sizes[i]);
        }
        break;
      case Kind::kCutout:
        break;
      case Kind::kNormalize:
        normalize();
        break;
      case Kind::kCast:
        compute_with(operation_->element);
        break;
      case Kind::kToChw:
        need(type_.shape.size() >= 3, "rows, columns and channels, got ", type_.shape.size(), " axes");
        need(!is_window_last(), "channels on the last axis, got a Window on it");
        std::ranges::rotate(type_.shape, type_.shape.end() - 1);
        break;
    }
  }

  void take_window() {
    const auto& [axes, numbers] = std::tie(operation_->axes, operation_->numbers);
    need(axes.size() == 1, "one axis, got ", axes.size());
    need(numbers.size() > 3, "two bounds of its anchors, their stride and offsets, got ", numbers.size(), " numbers");
    for (const double number : numbers) {
      need(std::abs(number) < kMaxOffset && number == std::trunc(number), "whole numbers below 2^40, got ", number);
    }
    need(numbers[2] >= 1, "a stride of at least 1, got ", numbers[2]);
    std::uint64_t& extent = type_.shape[axes[0]];
    need(extent == kVariable || Anchors(*operation_, static_cast<std::int64_t>(extent)).count > 0, "an anchor from ",
         numbers[0], " to ", numbers[1], " on axis ", axes[0], ", which has ", extent);
    extent = offsets_of(*operation_).size();
    window_ = static_cast<int>(axes[0]);
  }

  void resample() {
    const auto& [axes, sizes] = std::tie(operation_->axes, operation_->sizes);
    need(axes.size() == 2 && axes[1] == axes[0] + 1, "two axes side by side, rows first, got others");
    need(std::cmp_not_equal(window_, axes[0]) && std::cmp_not_equal(window_, axes[1]),
         "rows and columns without a Window, got one on axis ", window_);
    need(operation_->nearest || type_.element != Element::kOther, "numbers, or no interpolation, got other elements");
    std::uint64_t& rows = type_.shape[axes[0]];
    std::uint64_t& columns = type_.shape[axes[1]];
    for (const std::uint64_t extent : {rows, columns, sizes.front(), sizes.back()}) {
      need(extent != 0 && (extent < kMaxResampled || extent == kVariable), "from 1 to 2^31 - 1 rows and columns, got ",
           extent);
    }
    const bool known = (rows != kVariable && columns != kVariable) || sizes.size() == 2;
    const Sizes result = known ? resampled_sizes(*operation_, rows, columns) : Sizes{kVariable, kVariable};
    rows = result.rows;
    columns = result.columns;
    columns_ = static_cast<int>(axes[1]);
  }

  void normalize() {
    const std::vector<double>& numbers = operation_->numbers;
    const std::size_t channels = numbers.size() / 2;
    need(channels != 0 && numbers.size() % 2 == 0, "a mean and a standard deviation for each channel, got ",
         numbers.size(), " numbers");
    const std::uint64_t last = type_.shape.empty() ? 1 : type_.shape.back();
    need(channels == 1 || last == channels || last == kVariable, channels, " channels on the last axis, got ", last);
    need(channels == 1 || !is_window_last(), "channels on the last axis, got a Window on it");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      need(std::isfinite(numbers[i]), "finite numbers, got ", numbers[i]);
      need(i < channels || numbers[i] != 0, "standard deviations other than 0, got 0");
    }
    compute_with(Element::kFloat32);
  }

  void compute_with(Element element) {
    need(type_.element != Element::kOther && element != Element::kOther, "numbers, got elements of another type");
    type_.element = element;
    type_.element_bytes = size_of(element);
  }

  [[nodiscard]] bool is_window_last() const { return window_ + 1 == static_cast<int>(type_.shape.size()); }

  ArrayType& type_;
  const Operation* operation_ = nullptr;
  Kind last_ = Kind::kWindow;  // the highest so far
  std::uint32_t seen_ = 0;     // bit k: kind k, kResize also for kResizedCrop
  std::uint64_t touched_ = 0;  // bit i: axis i is not taken as it is
  int columns_ = -1;           // the second axis that is resampled
  int window_ = -1;            // the axis of a kWindow
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
