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

// Geometry comes first, in any order; each of the others comes once at most.
int rank_of(Kind kind) noexcept {
  return kind < Kind::kCutout ? 0 : static_cast<int>(kind) - static_cast<int>(Kind::kCutout) + 1;
}

// Walks through the operations with the type between them.
class Walk {
 public:
  explicit Walk(ArrayType& type) : type_(type) {}

  void step(const Operation& operation) {
    operation_ = &operation;
    const int rank = rank_of(operation.kind);
    require(rank >= last_rank_, "a place before " + before_, "one after it");
    require(rank == 0 || operation.kind == Kind::kCutout || rank > last_rank_, "only one", "a second one");
    last_rank_ = rank;
    before_ = name_of(operation.kind, kNames);
    check_places();
    apply();
  }

 private:
  // Throws unless `met`.
  void require(bool met, const std::string& needed, const std::string& came) const {
    if (!met) {
      throw std::invalid_argument(std::string(name_of(operation_->kind, kNames)) + " needs " + needed + ", got " +
                                  came);
    }
  }

  void require_number(std::size_t i, bool met, const std::string& needed) const {
    require(met, needed, std::to_string(operation_->numbers[i]));
  }

  void check_places() const {
    const std::vector<std::uint32_t>& axes = operation_->axes;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      require(axes[i] < type_.shape.size(), "axes of the item, which has " + std::to_string(type_.shape.size()),
              "axis " + std::to_string(axes[i]));
      require(std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), axes[i]) ==
                  axes.begin() + static_cast<std::ptrdiff_t>(i),
              "different axes", "axis " + std::to_string(axes[i]) + " twice");
    }
    const bool sized = operation_->kind < Kind::kNormalize && operation_->kind != Kind::kFlip;
    const bool shorter = operation_->kind == Kind::kResize && operation_->sizes.size() == 1;
    require(operation_->sizes.size() == (sized ? axes.size() : 0) || shorter, "a size for each of its axes",
            std::to_string(operation_->sizes.size()) + " for " + std::to_string(axes.size()));
    for (const std::uint64_t size : operation_->sizes) {
      require(size < kMaxBytes, "sizes of items", std::to_string(size));
    }
    for (std::size_t i = 0; i < operation_->numbers.size(); ++i) {
      require_number(
          i, !std::isnan(operation_->numbers[i]) || operation_->kind == Kind::kPad || operation_->kind == Kind::kCutout,
          "numbers");
    }
  }

  void apply() {
    switch (operation_->kind) {
      case Kind::kCrop:
      case Kind::kCenterCrop:
        crop();
        break;
      case Kind::kResizedCrop:
      case Kind::kResize:
        resample();
        break;
      case Kind::kFlip:
        require(operation_->axes.size() == 1, "one axis", std::to_string(operation_->axes.size()));
        check_probability();
        break;
      case Kind::kPad:
        count_numbers(1);
        check_value(0);
        for (std::size_t i = 0; i < operation_->axes.size(); ++i) {
          std::uint64_t& extent = type_.shape[operation_->axes[i]];
          extent = std::max(extent, operation_->sizes[i]);
        }
        break;
      case Kind::kCutout:
        count_numbers(2);
        check_probability();
        check_value(1);
        break;
      case Kind::kNormalize:
        normalize();
        break;
      case Kind::kCast:
        check_computable();
        require(operation_->element != Element::kOther, "a type of numbers", "another");
        set_element(operation_->element);
        break;
      case Kind::kToChw:
        require(!type_.shape.empty(), "an item with axes", "one without");
        std::ranges::rotate(type_.shape, type_.shape.end() - 1);
        break;
    }
  }

  void crop() {
    for (std::size_t i = 0; i < operation_->axes.size(); ++i) {
      const std::uint32_t axis = operation_->axes[i];
      const std::uint64_t size = operation_->sizes[i];
      require(size <= type_.shape[axis], "at least " + std::to_string(size) + " on axis " + std::to_string(axis),
              std::to_string(type_.shape[axis]));
      type_.shape[axis] = size;
    }
  }

  void resample() {
    const std::vector<std::uint32_t>& axes = operation_->axes;
    require(axes.size() == 2 && axes[1] == axes[0] + 1, "two axes side by side, rows first", shown(axes));
    require(!resampled_, "items that are not resampled before", "a second resampling");
    resampled_ = true;
    require(operation_->nearest || type_.element != Element::kOther, "numbers, or no interpolation", "other elements");
    for (const std::uint64_t size : operation_->sizes) {
      require(size > 0 && size < kMaxResampled, "sizes from 1 to 2^31 - 1", std::to_string(size));
    }
    if (operation_->kind == Kind::kResizedCrop) {
      count_numbers(4);
      const std::vector<double>& numbers = operation_->numbers;
      require_number(0, numbers[0] > 0 && numbers[0] <= numbers[1], "a least area above 0, up to the most");
      require_number(1, numbers[1] <= 1, "a most area of at most 1");
      require_number(2, numbers[2] > 0 && numbers[2] <= numbers[3], "a least ratio above 0, up to the most");
      require_number(3, std::isfinite(numbers[3]), "a finite ratio");
    }
    std::uint64_t& rows = type_.shape[axes[0]];
    std::uint64_t& columns = type_.shape[axes[1]];
    for (const std::uint64_t extent : {rows, columns}) {
      require(extent > 0 && (extent < kMaxResampled || extent == kVariable), "from 1 to 2^31 - 1 rows and columns",
              std::to_string(extent));
    }
    if (operation_->sizes.size() == 2) {
      rows = operation_->sizes[0];
      columns = operation_->sizes[1];
    } else if (rows == kVariable || columns == kVariable) {
      rows = kVariable;
      columns = kVariable;
    } else {
      const Sizes sizes = resampled_sizes(*operation_, rows, columns);
      rows = sizes.rows;
      columns = sizes.columns;
    }
  }

  void normalize() {
    check_computable();
    const std::vector<double>& numbers = operation_->numbers;
    const std::size_t channels = numbers.size() / 2;
    require(channels > 0 && numbers.size() % 2 == 0, "a mean and a standard deviation for each channel",
            std::to_string(numbers.size()) + " numbers");
    if (channels > 1) {
      require(!type_.shape.empty() && (type_.shape.back() == channels || type_.shape.back() == kVariable),
              std::to_string(channels) + " channels on the last axis",
              type_.shape.empty() ? "an item without axes" : std::to_string(type_.shape.back()));
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      require_number(i, std::isfinite(numbers[i]) && (i < channels || numbers[i] != 0),
                     i < channels ? "finite means" : "standard deviations other than 0");
    }
    set_element(Element::kFloat32);
  }

  void count_numbers(std::size_t count) const {
    require(operation_->numbers.size() == count, std::to_string(count) + " numbers",
            std::to_string(operation_->numbers.size()));
  }

  void check_probability() const {
    require(!operation_->numbers.empty(), "a probability", "none");
    require_number(0, operation_->numbers[0] >= 0 && operation_->numbers[0] <= 1, "a probability from 0 to 1");
  }

  // The value of padding: of an integer type's range, and 0 where elements are no numbers.
  void check_value(std::size_t i) const {
    const double value = operation_->numbers[i];
    if (type_.element == Element::kOther) {
      require_number(i, value == 0, "the value 0 for elements that are not numbers");
    } else {
      with_type(type_.element, [&]<class T>(std::type_identity<T>) {
        if constexpr (std::is_integral_v<T>) {
          require_number(i, static_cast<double>(converted<T>(value)) == value,
                         std::string("a value of ") + name_of(type_.element, kElements));
        }
      });
    }
  }

  void check_computable() const { require(type_.element != Element::kOther, "numbers", "elements of another type"); }

  void set_element(Element element) {
    type_.element = element;
    type_.element_bytes = with_type(element, []<class T>(std::type_identity<T>) { return sizeof(T); });
  }

  static std::string shown(const auto& values) {
    std::string result;
    for (const auto value : values) {
      result += (result.empty() ? "(" : ", ") + std::to_string(value);
    }
    return result.empty() ? "()" : result + ")";
  }

  ArrayType& type_;
  const Operation* operation_ = nullptr;
  bool resampled_ = false;
  int last_rank_ = 0;
  std::string before_;
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
