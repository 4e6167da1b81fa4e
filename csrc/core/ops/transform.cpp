#include "core/ops/transform.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/memory/stream_copy.hpp"
#include "core/ops/kernels.hpp"

namespace pyecho::ops {
namespace {

constexpr std::array<std::uint64_t, 1> kScalar{1};
// Lines of items that are not in the second cache are fetched while so many before them are copied. Longer ones are not:
// the processor fetches them itself.
constexpr std::int64_t kLinesAhead = 4;
constexpr std::size_t kLongLineBytes = 8192;
constexpr std::int64_t kSmallItemBytes = 1 << 16;

// An item without axes is computed like one element on one axis.
std::span<const std::uint64_t> with_axes(std::span<const std::uint64_t> shape) noexcept {
  return shape.empty() ? std::span<const std::uint64_t>(kScalar) : shape;
}

}  // namespace

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): most items have few axes
Transform::Transform(const Program& program, const UseKey& key, std::span<const std::uint64_t> shape) noexcept
    : program_(program),
      shape_(with_axes(shape)),
      geometry_(geometry_of(std::span(program.operations_).first(program.geometry_), shape_, key)),
      line_axis_(program.last_touched_) {
  const bool any = program.values_.any();
  if (any && !program.resamples_ && shape_.size() >= 2) {
    line_axis_ = std::max(line_axis_, shape_.size() - 2);
  }
  if (axis(line_axis_).offsets != nullptr) {  // the elements of a line lie side by side
    ++line_axis_;
  }
  strides_[shape_.size()] = static_cast<std::int64_t>(program.item_.element_bytes);
  auto stride = static_cast<std::int64_t>(program.item_.element_bytes);
  for (std::size_t i = shape_.size(); i-- > 0;) {
    strides_[i] = stride;
    stride *= static_cast<std::int64_t>(shape_[i]);
    elements_ *= static_cast<std::size_t>(axis(i).window.extent);
    block_ *= i > line_axis_ ? static_cast<std::size_t>(shape_[i]) : 1;
  }
  channels_ = program.values_.by_channel() ? static_cast<std::size_t>(axis(shape_.size() - 1).window.extent) : 1;
  block_bytes_ = block_ * program.item_.element_bytes;
  line_elements_ = static_cast<std::size_t>(line().extent) * block_;
  values_at_ = any ? aligned(line_elements_ * program.item_.element_bytes) : 0;
  resampler_at_ = values_at_ + aligned(program.values_.scratch_bytes(channels_));
}

void Transform::write_shape(std::byte* to) const noexcept {
  const std::size_t axes = program_.output().shape.size();
  for (std::size_t i = 0; i < axes; ++i) {
    const std::size_t of_item = program_.values_.to_chw() ? (i + axes - 1) % axes : i;
    std::memcpy(to + i * sizeof(std::uint64_t), &axis(of_item).window.extent, sizeof(std::uint64_t));
  }
}

std::size_t Transform::scratch_bytes() const noexcept {
  return resampler_at_ + (program_.resamples_
                              ? Resampler::scratch_bytes(axis(line_axis_ - 1), axis(line_axis_), shape_[line_axis_ - 1],
                                                         shape_[line_axis_], block_)
                              : 0);
}

void Transform::write(const std::byte* item, std::byte* row, std::byte* scratch, bool stream) noexcept {
  if (elements_ == 0) {
    return;
  }
  row_ = row;
  scratch_ = scratch;
  stream_ = stream;
  if (program_.resamples_) {
    resampler_.emplace(axis(line_axis_ - 1), axis(line_axis_), program_.nearest_, program_.item_, block_,
                       scratch + resampler_at_);
  }
  moves_ = !program_.values_.any() && !program_.resamples_ && !geometry_.cut && line().inside();
  visit(0, item, 0, false, geometry_.cut);
}

// Visits the lines of a part of the item from axis `i` on, in the order of the output. `resampled`: which row.
void Transform::visit(std::size_t i, const std::byte* from, std::size_t resampled, bool padding, bool cut) noexcept {
  if (i == line_axis_) {
    write_line(from, resampled, padding, cut);
    return;
  }
  const Window& window = axis(i).window;
  if (moves_ && i + 1 == line_axis_ && !padding && window.inside() && axis(i).offsets == nullptr) {
    move_lines(from + window.first * strides_[i], window.step * strides_[i], window.extent);
    return;
  }
  const bool rows = resampler_ && i + 1 == line_axis_;
  for (std::int64_t index = 0; index < window.extent; ++index) {
    const bool outside = index < window.begin || index >= window.end;
    visit(i + 1, outside || rows ? from : from + axis(i).at(index) * strides_[i],
          static_cast<std::size_t>(index - window.begin), padding || outside,
          cut && index >= axis(i).cut_begin && index < axis(i).cut_end);
  }
}

// The loop of crops and flips, which are often of short lines.
void Transform::move_lines(const std::byte* from, std::int64_t stride, std::int64_t count) noexcept {
  std::byte* to = row_ + written_ * program_.item_.element_bytes;
  const std::size_t line_bytes = line_elements_ * program_.item_.element_bytes;
  const std::int64_t first = std::min(line().at(0), line().at(line().extent - 1)) * block_stride();
  const bool ahead = line_bytes < kLongLineBytes && count * std::abs(stride) >= kSmallItemBytes;
  for (std::int64_t i = 0; i < count; ++i, from += stride, to += line_bytes) {
    if (ahead && i + kLinesAhead < count) {
      prefetch_line(from + kLinesAhead * stride + first, line_bytes);
    }
    move_line(to, from, 0, line().extent);
  }
  written_ += static_cast<std::size_t>(count) * line_elements_;
}

void Transform::write_line(const std::byte* from, std::size_t resampled, bool padding, bool cut) noexcept {
  const std::size_t first = std::exchange(written_, written_ + line_elements_);
  if (!program_.values_.any()) {
    make_line(row_ + first * program_.item_.element_bytes, from, resampled, padding, cut);
    return;
  }
  if (resampler_ || padding || cut || line().step < 0 || !line().inside()) {
    make_line(scratch_, from, resampled, padding, cut);
    from = scratch_;
  } else {
    from += line().first * strides_[line_axis_];
  }
  program_.values_.write(row_, first / channels_, elements_ / channels_, from, line_elements_ / channels_, channels_,
                         scratch_ + values_at_, stream_);
}

void Transform::make_line(std::byte* to, const std::byte* from, std::size_t resampled, bool padding,
                          bool cut) noexcept {
  const std::int64_t begin = padding ? line().extent : line().begin;
  const std::int64_t end = padding ? line().extent : line().end;
  fill(to, 0, begin, program_.padding_);
  if (begin < end) {
    std::byte* const inside = to + begin * block_stride();
    if (resampler_) {
      resampler_->write(inside, from, strides_[line_axis_ - 1], resampled);
    } else {
      move_line(inside, from, begin, end);
    }
  }
  fill(to, end, line().extent, program_.padding_);
  if (cut) {
    fill(to, axis(line_axis_).cut_begin, axis(line_axis_).cut_end, program_.cut_value_);
  }
}

void Transform::move_line(std::byte* to, const std::byte* from, std::int64_t begin, std::int64_t end) const noexcept {
  const auto count = static_cast<std::size_t>(end - begin);
  if (line().step > 0) {
    copy_bytes(to, from + line().at(begin) * block_stride(), count * block_bytes_, stream_ && !program_.values_.any());
  } else {
    kernels().reverse(to, from + line().at(end - 1) * block_stride(), count, block_bytes_);
  }
}

void Transform::fill(std::byte* to, std::int64_t begin, std::int64_t end, const Filling& value) const noexcept {
  if (begin < end) {
    value.fill(to + begin * block_stride(), static_cast<std::size_t>(end - begin) * block_bytes_);
  }
}

}  // namespace pyecho::ops
