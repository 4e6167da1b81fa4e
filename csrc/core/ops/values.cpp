#include "core/ops/values.hpp"

#include <algorithm>
#include <cstring>

#include "core/ops/element.hpp"
#include "core/ops/kernels.hpp"

namespace pyecho::ops {
namespace {

// Elements between two steps of a computation: they stay in the first cache.
constexpr std::size_t kChunk = 1024;

// Returns the elements of each buffer between two steps.
constexpr std::size_t buffered(std::size_t channels) noexcept { return std::max((channels + 15) / 16 * 16, kChunk); }

void normalize(float* to, Element type, const std::byte* from, const float* scale, const float* offset,
               std::size_t count) noexcept {
  if (type == Element::kUint8) {
    return kernels().scale_bytes(to, reinterpret_cast<const std::uint8_t*>(from), scale, offset, count);
  }
  convert_elements(Element::kFloat32, reinterpret_cast<std::byte*>(to), type, from, count);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = to[i] * scale[i] + offset[i];
  }
}

// Writes each channel of `count` pixels to a row of its own, `stride` bytes apart.
template <std::size_t kBytes>
void split(std::byte* to, std::size_t stride, const std::byte* from, std::size_t count, std::size_t channels) noexcept {
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to + channel * stride + i * kBytes, from + (i * channels + channel) * kBytes, kBytes);
    }
  }
}

void split_channels(std::byte* to, std::size_t stride, const std::byte* from, std::size_t count, std::size_t channels,
                    std::size_t element_bytes) noexcept {
  switch (element_bytes) {
    case 1:
      if (channels == 3) {
        return kernels().split_rgb(reinterpret_cast<std::uint8_t*>(to), static_cast<std::ptrdiff_t>(stride),
                                   reinterpret_cast<const std::uint8_t*>(from), count);
      }
      return split<1>(to, stride, from, count, channels);
    case 2:
      return split<2>(to, stride, from, count, channels);
    case 4:
      return split<4>(to, stride, from, count, channels);
    case 8:
      return split<8>(to, stride, from, count, channels);
    default:
      for (std::size_t i = 0; i < count * channels; ++i) {
        std::memcpy(to + i % channels * stride + i / channels * element_bytes, from + i * element_bytes, element_bytes);
      }
  }
}

}  // namespace

void convert_elements(Element to_type, std::byte* to, Element from_type, const std::byte* from,
                      std::size_t count) noexcept {
  with_type(from_type, [&]<class T>(std::type_identity<T>) {
    with_type(to_type, [&]<class U>(std::type_identity<U>) {
      auto* const results = reinterpret_cast<U*>(to);
      const auto* const elements = reinterpret_cast<const T*>(from);
      if constexpr (std::is_same_v<T, U>) {
        std::copy_n(elements, count, results);
      } else if constexpr (std::is_same_v<T, float> && std::is_same_v<U, Half>) {
        kernels().to_halves(results, elements, count);
      } else if constexpr (std::is_same_v<T, Half> && std::is_same_v<U, float>) {
        kernels().from_halves(results, elements, count);
      } else {
        std::transform(elements, elements + count, results, converted<U, T>);
      }
    });
  });
}

Values::Values(const ArrayType& item, std::span<const Operation> operations)
    : from_(item.element), to_(item.element), from_bytes_(item.element_bytes), to_bytes_(item.element_bytes) {
  std::vector<double> numbers;
  for (const Operation& operation : operations) {
    if (operation.kind == Kind::kNormalize) {
      normalize_ = true;
      numbers = operation.numbers;
      to_ = Element::kFloat32;
    } else if (operation.kind == Kind::kCast) {
      cast_ = operation.element != to_;
      to_ = operation.element;
    } else {
      to_chw_ = true;
    }
  }
  if (normalize_ || cast_) {
    to_bytes_ = with_type(to_, []<class T>(std::type_identity<T>) { return sizeof(T); });
  }
  if (normalize_) {
    channels_ = numbers.size() / 2;
    const double unit = unit_of(from_);
    const std::size_t pixels = chunk_pixels(channels_);
    for (std::size_t i = 0; i < pixels * channels_; ++i) {
      const std::size_t channel = to_chw_ ? i / pixels : i % channels_;
      scale_.push_back(static_cast<float>(1 / (unit * numbers[channels_ + channel])));
      offset_.push_back(static_cast<float>(-numbers[channel] / numbers[channels_ + channel]));
    }
  }
}

std::size_t Values::chunk_pixels(std::size_t channels) const noexcept {
  return std::max<std::size_t>(1, kChunk / std::max<std::size_t>(1, by_channel() ? channels : 1));
}

std::size_t Values::scratch_bytes(std::size_t channels) const noexcept {
  const std::size_t elements = buffered(channels);
  return elements * sizeof(float) + (to_chw_ ? elements * from_bytes_ : 0);
}

void Values::convert(std::byte* to, const std::byte* from, std::size_t count, std::size_t channel,
                     float* scratch) const noexcept {
  if (normalize_) {
    const std::size_t first = channels_ > 1 ? channel * (scale_.size() / channels_) : 0;
    float* const floats = cast_ ? scratch : reinterpret_cast<float*>(to);
    normalize(floats, from_, from, scale_.data() + first, offset_.data() + first, count);
    if (cast_) {
      convert_elements(to_, to, Element::kFloat32, reinterpret_cast<const std::byte*>(floats), count);
    }
  } else if (cast_) {
    convert_elements(to_, to, from_, from, count);
  } else {
    std::memcpy(to, from, count * from_bytes_);
  }
}

void Values::write(const Place& place, const std::byte* from, std::size_t count, std::size_t channels,
                   std::byte* scratch) const noexcept {
  const std::size_t chunk = chunk_pixels(channels);
  auto* const floats = reinterpret_cast<float*>(scratch);
  std::byte* const planes = scratch + buffered(channels) * sizeof(float);
  if (!to_chw_) {
    const std::size_t step = by_channel() ? chunk * channels : kChunk;
    for (std::size_t done = 0; done < count * channels; done += step) {
      convert(place.row + (place.position * channels + done) * to_bytes_, from + done * from_bytes_,
              std::min(step, count * channels - done), 0, floats);
    }
    return;
  }
  for (std::size_t done = 0; done < count; done += chunk) {
    const std::size_t pixels = std::min(chunk, count - done);
    const std::size_t plane_bytes = pixels * from_bytes_;
    split_channels(planes, plane_bytes, from + done * channels * from_bytes_, pixels, channels, from_bytes_);
    for (std::size_t channel = 0; channel < channels; ++channel) {
      convert(place.row + (channel * place.pixels + place.position + done) * to_bytes_, planes + channel * plane_bytes,
              pixels, channel, floats);
    }
  }
}

}  // namespace pyecho::ops
