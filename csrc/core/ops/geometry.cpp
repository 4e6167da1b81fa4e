#include "core/ops/geometry.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/plan/permutation.hpp"
#include "core/random.hpp"

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

void crop_to_box(const Operation& operation, const Numbers& numbers, Window& rows, Window& columns) noexcept {
  const double* const bounds = operation.numbers.data();
  const auto height = static_cast<double>(rows.extent);
  const auto width = static_cast<double>(columns.extent);
  for (std::uint64_t draw = 0; draw < 4 * kAttempts; draw += 4) {
    const double area = height * width * (bounds[0] + numbers.unit(draw) * (bounds[1] - bounds[0]));
    const double least = std::log(bounds[2]);
    const double ratio = std::exp(least + numbers.unit(draw + 1) * (std::log(bounds[3]) - least));
    const double box_width = std::nearbyint(std::sqrt(area * ratio));
    const double box_height = std::nearbyint(std::sqrt(area / ratio));
    if (box_width >= 1 && box_width <= width && box_height >= 1 && box_height <= height) {
      const auto box_rows = static_cast<std::int64_t>(box_height);
      const auto box_columns = static_cast<std::int64_t>(box_width);
      rows.crop(numbers.below(draw + 2, rows.extent - box_rows + 1), box_rows);
      columns.crop(numbers.below(draw + 3, columns.extent - box_columns + 1), box_columns);
      return;
    }
  }
  // At least one, where a single row or column is already out of bounds.
  rows.take_middle(std::max<std::int64_t>(1, std::llrint(std::min(width / bounds[2], height))));
  columns.take_middle(std::max<std::int64_t>(1, std::llrint(std::min(height * bounds[3], width))));
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

// Each use of an item has another anchor, as long as there are some: then they begin again, in another order.
void take_window(Axis& axis, const Operation& operation, const UseKey& key) noexcept {
  const std::int64_t extent = axis.window.extent;
  const Anchors anchors(operation, key.extent > 0 ? static_cast<std::int64_t>(key.extent) : extent);
  const auto count = static_cast<std::uint64_t>(anchors.count);
  const Permutation order(count, key.item + (operation.draws + 1ULL) * kGoldenGamma, key.ordinal / count);
  axis.anchor = anchors.first + static_cast<std::int64_t>(order(key.ordinal % count)) * anchors.stride;
  const std::span<const double> offsets = offsets_of(operation);
  const auto size = static_cast<std::int64_t>(offsets.size());
  const std::int64_t first = axis.anchor + static_cast<std::int64_t>(offsets.front());
  const auto gap = [](double one, double next) { return next != one + 1; };
  const bool side_by_side = std::ranges::adjacent_find(offsets, gap) == offsets.end();
  if (side_by_side && first >= 0 && first + size <= extent) {
    axis.window.crop(first, size);
  } else {
    axis.offsets = offsets.data();
    axis.extent = extent;
    axis.window = Window::all(size);
  }
}

}  // namespace

Anchors::Anchors(const Operation& window, std::int64_t extent) noexcept
    : first(static_cast<std::int64_t>(window.numbers[0])), stride(static_cast<std::int64_t>(window.numbers[2])) {
  auto last = static_cast<std::int64_t>(window.numbers[1]);
  first += first < 0 ? extent : 0;
  last += last < 0 ? extent : 0;
  count = first < 0 || last >= extent || last < first ? 0 : (last - first) / stride + 1;
}

std::span<const double> offsets_of(const Operation& window) noexcept { return std::span(window.numbers).subspan(3); }

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

Geometry geometry_of(std::span<const Operation> operations, std::span<const std::uint64_t> shape,
                     const UseKey& key) noexcept {
  Geometry geometry;  // NOLINT(cppcoreguidelines-pro-type-member-init): most items have few axes
  geometry.cut = false;
  auto& axes = geometry.axes;
  // One more than the item has, of one element, for a line behind a window of the last axis.
  for (std::size_t i = 0; i <= shape.size(); ++i) {
    const Window all = Window::all(i < shape.size() ? static_cast<std::int64_t>(shape[i]) : 1);
    axes[i] = {all, 0, all, 0, 0, nullptr, 0, 0};
  }
  for (const Operation& operation : operations) {
    const Numbers numbers(key.use, operation.draws);
    switch (operation.kind) {
      case Kind::kWindow:
        take_window(axes[operation.axes[0]], operation, key);
        break;
      case Kind::kCrop:
      case Kind::kCenterCrop:
      case Kind::kPad:
        for (std::size_t i = 0; i < operation.axes.size(); ++i) {
          Window& window = axes[operation.axes[i]].window;
          const auto size = static_cast<std::int64_t>(operation.sizes[i]);
          if (operation.kind == Kind::kCrop) {
            window.crop(numbers.below(i, window.extent - size + 1), size);
          } else {
            window.take_middle(operation.kind == Kind::kPad ? std::max(size, window.extent) : size);
          }
        }
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
          crop_to_box(operation, numbers, rows.window, columns.window);
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
