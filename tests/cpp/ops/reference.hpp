// Operations as program.hpp describes them, one after another, on arrays of doubles.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "core/ops/element.hpp"
#include "core/ops/program.hpp"
#include "core/random.hpp"

namespace pyecho::ops {

using Shape = std::vector<std::uint64_t>;
using Bytes = std::vector<std::byte>;

inline std::size_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

inline std::size_t bytes_of(Element element) {
  return with_type(element, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

inline Bytes encoded(const std::vector<double>& values, Element element) {
  Bytes bytes(values.size() * bytes_of(element));
  with_type(element, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = converted<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

inline std::vector<double> decoded(const Bytes& bytes, Element element) {
  std::vector<double> values(bytes.size() / bytes_of(element));
  with_type(element, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value{};
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = converted<double>(value);
    }
  });
  return values;
}

class Reference {
 public:
  Reference(Element type, Shape extents, std::vector<double> elements)
      : element(type), shape(std::move(extents)), values(std::move(elements)) {}

  Element element;
  Shape shape;
  std::vector<double> values;

  void apply(const Operation& op, std::uint64_t key) {
    const std::uint64_t stream = mix64(key + (op.draws + 1ULL) * kGoldenGamma);
    const auto unit = [&](std::uint64_t i) { return unit_at(stream, i); };
    const auto place = [&](std::uint64_t i, double bound) {
      return static_cast<std::int64_t>(std::floor(unit(i) * bound));
    };
    switch (op.kind) {
      case Kind::kCrop:
      case Kind::kCenterCrop:
      case Kind::kPad:
        for (std::size_t i = 0; i < op.axes.size(); ++i) {
          const auto extent = static_cast<std::int64_t>(shape[op.axes[i]]);
          auto size = static_cast<std::int64_t>(op.sizes[i]);
          std::int64_t first = (extent - size) / 2;
          if (op.kind == Kind::kCrop) {
            first = place(i, static_cast<double>(extent - size + 1));
          } else if (op.kind == Kind::kPad) {
            size = std::max(size, extent);
            first = -((size - extent) / 2);
          }
          take(op.axes[i], size, op.kind == Kind::kPad ? op.numbers[0] : 0, [&](std::int64_t j) { return first + j; });
        }
        break;
      case Kind::kFlip: {
        const auto extent = static_cast<std::int64_t>(shape[op.axes[0]]);
        if (unit(0) < op.numbers[0]) {
          take(op.axes[0], extent, 0, [&](std::int64_t j) { return extent - 1 - j; });
        }
        break;
      }
      case Kind::kResizedCrop:
        crop_to_box(op, unit, place);
        resample(op, op.sizes[0], op.sizes[1]);
        break;
      case Kind::kResize: {
        const std::uint64_t rows = shape[op.axes[0]];
        const std::uint64_t columns = shape[op.axes[1]];
        const std::uint64_t size = op.sizes[0];
        if (op.sizes.size() == 2) {
          resample(op, size, op.sizes[1]);
        } else {
          resample(op, rows <= columns ? size : size * rows / columns, rows <= columns ? size * columns / rows : size);
        }
        break;
      }
      case Kind::kCutout:
        if (unit(0) < op.numbers[0]) {
          cut_out(op, place);
        }
        break;
      case Kind::kNormalize: {
        const std::size_t channels = op.numbers.size() / 2;
        const double levels = unit_of(element);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double mean = op.numbers[i % channels];
          const double deviation = op.numbers[channels + i % channels];
          const auto product = static_cast<float>(values[i]) * static_cast<float>(1 / (levels * deviation));
          const volatile float rounded = product;
          values[i] = static_cast<double>(rounded + static_cast<float>(-mean / deviation));
        }
        element = Element::kFloat32;
        break;
      }
      case Kind::kCast:
        element = op.element;
        values = decoded(encoded(values, element), element);
        break;
      case Kind::kToChw: {
        const std::size_t channels = shape.back();
        std::vector<double> result(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          result[i % channels * (values.size() / channels) + i / channels] = values[i];
        }
        values = result;
        std::rotate(shape.begin(), shape.end() - 1, shape.end());
        break;
      }
    }
  }

 private:
  // Splits an index into those before `axis`, on it and after it.
  [[nodiscard]] std::size_t after(std::size_t axis) const {
    return elements_of({shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end()});
  }
  [[nodiscard]] std::size_t before(std::size_t axis) const {
    return elements_of({shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis)});
  }

  // Output j of `axis` is the sum of weighted inputs.
  template <class Weights>
  void combine(std::size_t axis, std::int64_t size, double rest, const Weights& weights) {
    const std::size_t extent = shape[axis];
    const std::size_t inner = after(axis);
    const std::size_t outer = before(axis);
    std::vector<double> result;
    for (std::size_t o = 0; o < outer; ++o) {
      for (std::int64_t j = 0; j < size; ++j) {
        const auto inputs = weights(j);
        for (std::size_t i = 0; i < inner; ++i) {
          double sum = inputs.empty() ? rest : 0;
          for (const auto& [input, weight] : inputs) {
            sum += weight * values[(o * extent + static_cast<std::size_t>(input)) * inner + i];
          }
          result.push_back(sum);
        }
      }
    }
    values = result;
    shape[axis] = static_cast<std::uint64_t>(size);
  }

  using Inputs = std::vector<std::pair<std::int64_t, double>>;

  template <class Index>
  void take(std::size_t axis, std::int64_t size, double rest, const Index& index) {
    const auto extent = static_cast<std::int64_t>(shape[axis]);
    combine(axis, size, rest, [&](std::int64_t j) {
      const std::int64_t i = index(j);
      return i >= 0 && i < extent ? Inputs{{i, 1.0}} : Inputs{};
    });
  }

  template <class Unit, class Place>
  void crop_to_box(const Operation& op, const Unit& unit, const Place& place) {
    const auto height = static_cast<double>(shape[op.axes[0]]);
    const auto width = static_cast<double>(shape[op.axes[1]]);
    const double least = op.numbers[2];
    const double most = op.numbers[3];
    double rows = std::clamp(std::nearbyint(width / least), 1.0, height);
    double columns = std::clamp(std::nearbyint(height * most), 1.0, width);
    auto row = static_cast<std::int64_t>(height - rows) / 2;
    auto column = static_cast<std::int64_t>(width - columns) / 2;
    for (std::uint64_t a = 0; a < 40; a += 4) {
      const double area = height * width * (op.numbers[0] + unit(a) * (op.numbers[1] - op.numbers[0]));
      const double ratio = std::exp(std::log(least) + unit(a + 1) * (std::log(most) - std::log(least)));
      const double w = std::nearbyint(std::sqrt(area * ratio));
      const double h = std::nearbyint(std::sqrt(area / ratio));
      if (w > 0 && w <= width && h > 0 && h <= height) {
        rows = h;
        columns = w;
        row = place(a + 2, height - h + 1);
        column = place(a + 3, width - w + 1);
        break;
      }
    }
    take(op.axes[0], static_cast<std::int64_t>(rows), 0, [&](std::int64_t j) { return row + j; });
    take(op.axes[1], static_cast<std::int64_t>(columns), 0, [&](std::int64_t j) { return column + j; });
  }

  void resample(const Operation& op, std::uint64_t rows, std::uint64_t columns) {
    for (const auto& [axis, size] : {std::pair{op.axes[0], rows}, std::pair{op.axes[1], columns}}) {
      const auto extent = static_cast<std::int64_t>(shape[axis]);
      const double scale = static_cast<double>(extent) / static_cast<double>(size);
      combine(axis, static_cast<std::int64_t>(size), 0, [&](std::int64_t j) {
        if (op.nearest) {
          return Inputs{{static_cast<std::int64_t>((static_cast<double>(j) + 0.5) * scale), 1.0}};
        }
        Inputs inputs;
        double sum = 0;
        for (std::int64_t i = 0; i < extent; ++i) {
          const double middle = (static_cast<double>(j) + 0.5) * scale - 0.5;
          const double weight = 1 - std::fabs(static_cast<double>(i) - middle) / std::max(1.0, scale);
          if (weight > 0) {
            inputs.emplace_back(i, weight);
            sum += weight;
          }
        }
        for (auto& [i, weight] : inputs) {
          weight /= sum;
        }
        return inputs;
      });
    }
    values = decoded(encoded(values, element), element);
  }

  template <class Place>
  void cut_out(const Operation& op, const Place& place) {
    for (std::size_t index = 0; index < values.size(); ++index) {
      bool inside = true;
      for (std::size_t i = 0; i < op.axes.size(); ++i) {
        const std::size_t axis = op.axes[i];
        const auto j = static_cast<std::int64_t>(index / after(axis) % shape[axis]);
        const auto size = static_cast<std::int64_t>(op.sizes[i]);
        const std::int64_t first = place(i + 1, static_cast<double>(shape[axis])) - size / 2;
        inside = inside && j >= first && j < first + size;
      }
      values[index] = inside ? op.numbers[1] : values[index];
    }
  }
};

struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{64}); }
};

// Runs a program with just as much memory as it asks for.
inline Bytes run_program(const Program& program, std::uint64_t key, const Bytes& item, const Shape& shape,
                         bool stream = false) {
  const std::unique_ptr<std::byte, FreeAligned> scratch(
      static_cast<std::byte*>(::operator new(program.scratch_bytes(shape), std::align_val_t{64})));
  Bytes row(elements_of(program.output_shape(shape)) * program.output().element_bytes);
  program.run(key, item.data(), shape, row.data(), scratch.get(), stream);
  return row;
}

}  // namespace pyecho::ops
