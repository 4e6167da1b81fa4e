#include "core/ops/values.hpp"

#include <algorithm>
#include <cstring>

#include "core/ops/element.hpp"
#include "core/ops/kernels.hpp"

namespace pyecho::ops {
namespace {

// Elements between two steps of a computation: they stay in the first cache.
constexpr std::size_t kChunk = 1024;

// Returns the pixels of a chunk.
constexpr std::size_t chunk_of(std::size_t channels) noexcept { return std::max<std::size_t>(1, kChunk / channels); }

// Writes each channel of `count` pixels to a row of its own, `stride` bytes apart.
void split_channels(std::byte* to, std::size_t stride, const std::byte* from, std::size_t count, std::size_t channels,
                    std::size_t element_bytes) noexcept {
  if (channels == 3 && element_bytes == 1) {
    return kernels().split_rgb(reinterpret_cast<std::uint8_t*>(to), stride, reinterpret_cast<const std::uint8_t*>(from),
                               count);
  }
  with_constant(element_bytes, [&](auto bytes) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(to + channel * stride + i * bytes, from + (i * channels + channel) * bytes, bytes);
      }
    }
  });
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
    } else if (operation.kind == Kind::kToChw) {
      to_chw_ = true;
    }
  }
  if (normalize_ || cast_) {
    to_bytes_ = size_of(to_);
  }
  if (normalize_) {
    channels_ = numbers.size() / 2;
    const double unit = unit_of(from_);
    const std::size_t pixels = chunk_of(channels_);
    for (std::size_t i = 0; i < pixels * channels_; ++i) {
      const std::size_t channel = to_chw_ ? i / pixels : i % channels_;
      scale_.push_back(static_cast<float>(1 / (unit * numbers[channels_ + channel])));
      offset_.push_back(static_cast<float>(-numbers[channel] / numbers[channels_ + channel]));
    }
  }
}

// For a chunk in float32, and one split into channels.
std::size_t Values::scratch_bytes(std::size_t channels) const noexcept {
  return any() ? std::max(channels, kChunk) * (sizeof(float) + from_bytes_) : 0;
}

void Values::write(std::byte* row, std::size_t position, std::size_t pixels, const std::byte* from, std::size_t count,
                   std::size_t channels, std::byte* scratch, bool stream) const noexcept {
  const std::size_t planes = to_chw_ ? channels : 1;
  const std::size_t each = channels / planes;  // elements of a pixel in a plane
  const std::size_t chunk = chunk_of(channels);
  std::byte* const split = scratch + std::max(channels, kChunk) * sizeof(float);
  for (std::size_t done = 0; done < count; done += chunk) {
    const std::size_t some = std::min(chunk, count - done);
    const std::byte* source = from + done * channels * from_bytes_;
    if (to_chw_ && !normalize_ && !cast_) {
      split_channels(row + (position + done) * to_bytes_, pixels * to_bytes_, source, some, channels, to_bytes_);
      continue;
    }
    if (to_chw_) {
      split_channels(split, some * from_bytes_, source, some, channels, from_bytes_);
      source = split;
    }
    for (std::size_t plane = 0; plane < planes; ++plane) {
      convert(row + (plane * pixels + position + done) * each * to_bytes_, source + plane * some * from_bytes_,
              some * each, plane, scratch, stream);
    }
  }
}

void Values::convert(std::byte* to, const std::byte* from, std::size_t count, std::size_t plane, std::byte* scratch,
                     bool stream) const noexcept {
  if (!normalize_) {
    return convert_elements(to_, to, from_, from, count);
  }
  const std::size_t first = channels_ > 1 ? plane * (scale_.size() / channels_) : 0;
  const float* const scale = scale_.data() + first;
  const float* const offset = offset_.data() + first;
  std::byte* const bytes = cast_ ? scratch : to;
  auto* const floats = reinterpret_cast<float*>(bytes);
  if (from_ == Element::kUint8) {
    kernels().scale_bytes(floats, reinterpret_cast<const std::uint8_t*>(from), scale, offset, count, stream && !cast_);
  } else {
    convert_elements(Element::kFloat32, bytes, from_, from, count);
    for (std::size_t i = 0; i < count; ++i) {
      floats[i] = floats[i] * scale[i] + offset[i];
    }
  }
  if (cast_) {
    convert_elements(to_, to, Element::kFloat32, bytes, count);
  }
}

// Zeros of all numbers are zero bytes.
Filling::Filling(Element element, double value) noexcept {
  if (value != 0) {
    with_type(element, [&]<class T>(std::type_identity<T>) {
      const T number = converted<T>(value);
      std::memcpy(value_.data(), &number, sizeof(T));
      bytes_ = sizeof(T);
    });
  }
}

void Filling::fill(std::byte* to, std::size_t bytes) const noexcept {
  if (bytes_ == 1) {
    std::memset(to, static_cast<int>(value_[0]), bytes);
    return;
  }
  std::memcpy(to, value_.data(), bytes_);
  for (std::size_t done = bytes_; done < bytes; done *= 2) {
    std::memcpy(to + done, to, std::min(done, bytes - done));
  }
}

}  // namespace pyecho::ops
