#include "core/ops/geometry.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/plan/random.hpp"

namespace pyecho::ops {
namespace {

constexpr std::uint64_t kAttempts = 10;  // of kResizedCrop, as in torchvision

// The random numbers of one operation.
class Numbers {
 public:
  Numbers(std::uint64_t key, std::uint32_t draws) noexcept : key_(mix64(key + (draws + 1ULL) * kGoldenGamma)) {}

  [[nodiscard]] double unit(std::uint64_t i) const noexcept { return unit_at(key_, i); }
  // Returns an integer in [0, bound); 0 if that is empty.
  [[nodiscard]] std::int64_t below(std::uint64_t i, std::int64_t bound) const noexcept {
    const double scaled = unit(i) * static_cast<double>(bound);
    return std::max<std::int64_t>(0, std::min(static_cast<std::int64_t>(scaled), bound - 1));
  }

 private:
  std::uint64_t key_;
};

struct Box {
  std::int64_t row;
  std::int64_t column;
  std::int64_t rows;
  std::int64_t columns;
};

Box random_box(const Operation& operation, const Numbers& numbers, std::int64_t rows, std::int64_t columns) noexcept {
  const auto [least, most, least_ratio, most_ratio] =
      std::array{operation.numbers[0], operation.numbers[1], operation.numbers[2], operation.numbers[3]};
  const auto height = static_cast<double>(rows);
  const auto width = static_cast<double>(columns);
  for (std::uint64_t draw = 0; draw < 4 * kAttempts; draw += 4) {
    const double area = height * width * (least + numbers.unit(draw) * (most - least));
    const double log_least = std::log(least_ratio);
    const double ratio = std::exp(log_least + numbers.unit(draw + 1) * (std::log(most_ratio) - log_least));
    const double box_width = std::nearbyint(std::sqrt(area * ratio));
    const double box_height = std::nearbyint(std::sqrt(area / ratio));
    if (box_width >= 1 && box_width <= width && box_height >= 1 && box_height <= height) {
      const auto box_rows = static_cast<std::int64_t>(box_height);
      const auto box_columns = static_cast<std::int64_t>(box_width);
      return {numbers.below(draw + 2, rows - box_rows + 1), numbers.below(draw + 3, columns - box_columns + 1),
              box_rows, box_columns};
    }
  }
  // At least one, where a single row or column is already out of bounds.
  const std::int64_t most_rows = std::max<std::int64_t>(1, std::llrint(std::min(width / least_ratio, height)));
  const std::int64_t most_columns = std::max<std::int64_t>(1, std::llrint(std::min(height * most_ratio, width)));
  return {(rows - most_rows) / 2, (columns - most_columns) / 2, most_rows, most_columns};
}

void resample(Axis& axis, std::uint64_t size) noexcept {
  axis.source = axis.window;
  axis.resampled = static_cast<std::int64_t>(size);
  axis.window = Window::all(axis.resampled);
}

void cut_out(Geometry& geometry, const Operation& operation, const Numbers& numbers, std::size_t rank) noexcept {
  geometry.cut = numbers.unit(0) < operation.numbers[0];
  for (std::size_t i = 0; i < rank; ++i) {
    geometry.axes[i].cut_end = geometry.axes[i].window.extent;
  }
  for (std::size_t i = 0; i < operation.axes.size(); ++i) {
    Axis& axis = geometry.axes[operation.axes[i]];
    const auto size = static_cast<std::int64_t>(operation.sizes[i]);
    const std::int64_t begin = numbers.below(i + 1, axis.window.extent) - size / 2;
    axis.cut_begin = std::max<std::int64_t>(begin, 0);
    axis.cut_end = std::clamp<std::int64_t>(begin + size, axis.cut_begin, axis.window.extent);
  }
}

}  // namespace

void Window::crop(std::int64_t place, std::int64_t size) noexcept {
  first = at(place);
  begin = std::clamp<std::int64_t>(begin - place, 0, size);
  end = std::clamp<std::int64_t>(end - place, begin, size);
  extent = size;
}

void Window::flip() noexcept {
  first = at(extent - 1);
  step = -step;
  begin = extent - std::exchange(end, extent - begin);
}

void Window::pad(std::int64_t size) noexcept {
  const std::int64_t before = std::max<std::int64_t>(0, size - extent) / 2;
  first = at(-before);
  begin += before;
  end += before;
  extent = std::max(extent, size);
}

Geometry geometry_of(std::span<const Operation> operations, std::span<const std::uint64_t> shape,
                     std::uint64_t key) noexcept {
  Geometry geometry;  // NOLINT(cppcoreguidelines-pro-type-member-init): most items have few axes
  geometry.cut = false;
  std::array<Axis, kMaxAxes>& axes = geometry.axes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const Window all = Window::all(static_cast<std::int64_t>(shape[i]));
    axes[i] = {all, 0, all, 0, 0};
  }
  for (const Operation& operation : operations) {
    const Numbers numbers(key, operation.draws);
    const auto each = [&](auto&& change) {
      for (std::size_t i = 0; i < operation.axes.size(); ++i) {
        change(axes[operation.axes[i]].window, static_cast<std::int64_t>(operation.sizes[i]), i);
      }
    };
    switch (operation.kind) {
      case Kind::kCrop:
        each([&](Window& window, std::int64_t size, std::size_t i) {
          window.crop(numbers.below(i, window.extent - size + 1), size);
        });
        break;
      case Kind::kCenterCrop:
        each([&](Window& window, std::int64_t size, std::size_t) { window.crop((window.extent - size) / 2, size); });
        break;
      case Kind::kPad:
        each([&](Window& window, std::int64_t size, std::size_t) { window.pad(size); });
        break;
      case Kind::kFlip:
        if (numbers.unit(0) < operation.numbers[0]) {
          axes[operation.axes[0]].window.flip();
        }
        break;
      case Kind::kResizedCrop:
      case Kind::kResize: {
        Axis& rows = axes[operation.axes[0]];
        Axis& columns = axes[operation.axes[1]];
        if (operation.kind == Kind::kResizedCrop) {
          const Box box = random_box(operation, numbers, rows.window.extent, columns.window.extent);
          rows.window.crop(box.row, box.rows);
          columns.window.crop(box.column, box.columns);
        }
        const Sizes sizes = resampled_sizes(operation, static_cast<std::uint64_t>(rows.window.extent),
                                            static_cast<std::uint64_t>(columns.window.extent));
        resample(rows, sizes.rows);
        resample(columns, sizes.columns);
        break;
      }
      default:
        cut_out(geometry, operation, numbers, shape.size());
    }
  }
  return geometry;
}

}  // namespace pyecho::ops
