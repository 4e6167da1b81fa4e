#include "core/ops/pass.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "core/memory/stream_copy.hpp"
#include "core/ops/element.hpp"
#include "core/ops/kernels.hpp"
#include "core/ops/resampler.hpp"

namespace pyecho::ops {
namespace {

constexpr std::size_t kAlignment = 64;  // of parts of the scratch memory
// A pass that changes the last axis has lines of its extent. At up to this, values are faster in a pass of their own.
constexpr std::uint64_t kShortLine = 16;

std::size_t aligned(std::size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::uint32_t mask_of(const std::vector<std::uint32_t>& axes) noexcept {
  std::uint32_t mask = 0;
  for (const std::uint32_t axis : axes) {
    mask |= 1U << axis;
  }
  return mask;
}

}  // namespace

Pass::Pass(const ArrayType& item, std::span<const Operation> operations) : item_(item), values_(item, {}) {
  const auto first_value =
      std::ranges::find_if(operations, [](const Operation& operation) { return operation.kind >= Kind::kNormalize; });
  const auto values = operations.subspan(static_cast<std::size_t>(first_value - operations.begin()));
  const Values all(item, values);
  const std::size_t geometry = operations.size() - values.size();
  length_ = take_geometry(operations.first(geometry));
  const std::uint32_t channels = item.shape.empty() ? 0 : 1U << (item.shape.size() - 1);
  // Values of pixels, or of lines that are long enough.
  const bool lines = !all.by_channel() && !item.shape.empty() && item.shape.back() > kShortLine;
  if (length_ == geometry && ((touched_ & channels) == 0 || lines)) {
    values_ = all;
    length_ = operations.size();
  }
}

std::size_t Pass::take_geometry(std::span<const Operation> operations) {
  bool padded = false;
  double pad_value = 0;
  bool cut = false;
  for (const Operation& operation : operations) {
    const std::uint32_t axes = mask_of(operation.axes);
    const bool resampling = resamples(operation.kind);
    const int columns = resampling ? static_cast<int>(operation.axes[1]) : columns_;
    const std::uint32_t inner = columns < 0 ? 0 : ~std::uint32_t{1} << columns;
    if (((resampling ? touched_ : axes) & inner) != 0 || (resampling && padded) ||
        (operation.kind == Kind::kPad && padded && operation.numbers[0] != pad_value) ||
        (operation.kind == Kind::kCutout && cut)) {
      break;
    }
    if (resampling) {
      columns_ = columns;
      nearest_ = operation.nearest;
    } else if (operation.kind == Kind::kPad) {
      padded = true;
      pad_value = operation.numbers[0];
      padding_ = Filling(item_, pad_value);
    } else if (operation.kind == Kind::kCutout) {
      cut = true;
      cut_value_ = Filling(item_, operation.numbers[1]);
    }
    touched_ |= axes;
    geometry_.push_back(operation);
  }
  return geometry_.size();
}

// Lines that are only moved are as long as possible; lines whose values are computed fit into the caches.
std::size_t Pass::line_axis(std::size_t rank) const noexcept {
  const std::size_t last = touched_ == 0 ? 0 : static_cast<std::size_t>(std::bit_width(touched_)) - 1;
  return values_.any() && columns_ < 0 && rank >= 2 ? std::max(last, rank - 2) : last;
}

void Pass::output_shape(std::span<const std::uint64_t> shape, std::span<std::uint64_t> output) const noexcept {
  const Geometry geometry = geometry_of(geometry_, shape, 0);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    output[i] = static_cast<std::uint64_t>(geometry.axes[i].window.extent);
  }
  if (values_.to_chw()) {
    std::ranges::rotate(output, output.end() - 1);
  }
}

// One run of a pass. A line of the output is what one index of the axes before line_axis() selects.
class PassRun {
 public:
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): most items have few axes
  PassRun(const Pass& pass, std::uint64_t key, std::span<const std::uint64_t> shape) noexcept
      : pass_(pass), geometry_(geometry_of(pass.geometry_, shape, key)), line_axis_(pass.line_axis(shape.size())) {
    auto stride = static_cast<std::int64_t>(pass.item_.element_bytes);
    for (std::size_t i = shape.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= static_cast<std::int64_t>(shape[i]);
      elements_ *= static_cast<std::size_t>(axis(i).window.extent);
      block_ *= i > line_axis_ ? static_cast<std::size_t>(shape[i]) : 1;
    }
    channels_ = pass.values_.by_channel() ? static_cast<std::size_t>(shape.back()) : 1;
    block_bytes_ = block_ * pass.item_.element_bytes;
    line_elements_ = static_cast<std::size_t>(line().extent) * block_;
    line_bytes_ = line_elements_ * pass.item_.element_bytes;
  }

  [[nodiscard]] std::size_t scratch_bytes(std::span<const std::uint64_t> shape) const noexcept {
    std::size_t bytes = 0;
    if (pass_.values_.any()) {
      bytes += aligned(line_bytes_) + aligned(pass_.values_.scratch_bytes(channels_));
    }
    if (pass_.columns_ >= 0) {
      bytes += Resampler::scratch_bytes(axis(line_axis_ - 1), axis(line_axis_),
                                        static_cast<std::int64_t>(shape[line_axis_ - 1]),
                                        static_cast<std::int64_t>(shape[line_axis_]), block_);
    }
    return bytes;
  }

  void run(const std::byte* item, std::byte* row, std::byte* scratch, bool stream) noexcept {
    if (elements_ == 0) {
      return;
    }
    row_ = row;
    stream_ = stream;
    if (pass_.values_.any()) {
      buffer_ = scratch;
      value_scratch_ = scratch + aligned(line_bytes_);
      scratch = value_scratch_ + aligned(pass_.values_.scratch_bytes(channels_));
    }
    if (pass_.columns_ >= 0) {
      resampler_.emplace(axis(line_axis_ - 1), axis(line_axis_), pass_.nearest_, pass_.item_, block_, scratch);
    }
    moves_ = !pass_.values_.any() && !resampler_ && !geometry_.cut && line().inside();
    visit(0, item, false, geometry_.cut);
  }

 private:
  [[nodiscard]] const Axis& axis(std::size_t i) const noexcept { return geometry_.axes[i]; }
  [[nodiscard]] const Window& line() const noexcept { return axis(line_axis_).window; }

  // Visits the lines of a part of the item from axis `i` on, in the order of the output.
  void visit(std::size_t i, const std::byte* from, bool padding, bool cut) noexcept {
    if (i == line_axis_) {
      write_line(from, padding, cut);
      return;
    }
    const Window& window = axis(i).window;
    if (moves_ && i + 1 == line_axis_ && !padding && window.inside()) {
      move_lines(from + window.first * strides_[i], window.step * strides_[i], window.extent);
      return;
    }
    const bool rows = resampler_ && i + 1 == line_axis_;
    for (std::int64_t index = 0; index < window.extent; ++index) {
      const bool outside = index < window.begin || index >= window.end;
      if (rows) {
        resampled_row_ = index - window.begin;
      }
      visit(i + 1, outside || rows ? from : from + window.at(index) * strides_[i], padding || outside,
            cut && index >= axis(i).cut_begin && index < axis(i).cut_end);
    }
  }

  // The loop of crops and flips.
  void move_lines(const std::byte* from, std::int64_t stride, std::int64_t count) noexcept {
    std::byte* to = row_ + written_ * pass_.item_.element_bytes;
    for (std::int64_t i = 0; i < count; ++i, from += stride, to += line_bytes_) {
      move_line(to, from, 0, static_cast<std::size_t>(line().extent));
    }
    written_ += static_cast<std::size_t>(count) * line_elements_;
  }

  void write_line(const std::byte* from, bool padding, bool cut) noexcept {
    const std::size_t first = written_;
    written_ += line_elements_;
    if (!pass_.values_.any()) {
      make_line(row_ + first * pass_.item_.element_bytes, from, padding, cut);
      return;
    }
    const bool as_it_is = !resampler_ && !padding && !cut && line().step > 0 && line().inside();
    if (!as_it_is) {
      make_line(buffer_, from, padding, cut);
    }
    pass_.values_.write({row_, first / channels_, elements_ / channels_},
                        as_it_is ? from + line().first * strides_[line_axis_] : buffer_, line_elements_ / channels_,
                        channels_, value_scratch_);
  }

  void make_line(std::byte* to, const std::byte* from, bool padding, bool cut) noexcept {
    const std::int64_t begin = padding ? line().extent : line().begin;
    const std::int64_t end = padding ? line().extent : line().end;
    fill_line(to, 0, begin, pass_.padding_);
    if (begin < end) {
      move_line(to + begin * block_stride(), from, begin, static_cast<std::size_t>(end - begin));
    }
    fill_line(to, end, line().extent, pass_.padding_);
    if (cut) {
      fill_line(to, axis(line_axis_).cut_begin, axis(line_axis_).cut_end, pass_.cut_value_);
    }
  }

  void move_line(std::byte* to, const std::byte* from, std::int64_t begin, std::size_t count) noexcept {
    if (resampler_) {
      resampler_->write(to, from, strides_[line_axis_ - 1], resampled_row_);
    } else if (line().step > 0) {
      copy_bytes(to, from + line().at(begin) * block_stride(), count * block_bytes_, stream_ && buffer_ == nullptr);
    } else {
      kernels().reverse(to, from + line().at(line().end - 1) * block_stride(), count, block_bytes_);
    }
  }

  void fill_line(std::byte* to, std::int64_t begin, std::int64_t end, const Filling& value) const noexcept {
    if (begin < end) {
      value.fill(to + begin * block_stride(), static_cast<std::size_t>(end - begin) * block_bytes_);
    }
  }

  [[nodiscard]] std::int64_t block_stride() const noexcept { return static_cast<std::int64_t>(block_bytes_); }

  const Pass& pass_;
  const Geometry geometry_;
  const std::size_t line_axis_;
  std::array<std::int64_t, kMaxAxes> strides_;  // of the item, in bytes
  std::size_t elements_ = 1;                    // of the output
  std::size_t block_ = 1;                       // elements of one index of the line
  std::size_t block_bytes_ = 0;
  std::size_t line_elements_ = 0;
  std::size_t line_bytes_ = 0;
  std::size_t channels_ = 1;  // if they matter
  std::optional<Resampler> resampler_{};
  std::byte* row_ = nullptr;
  bool stream_ = false;
  bool moves_ = false;           // nothing but whole lines of the item
  std::byte* buffer_ = nullptr;  // for a line whose values are yet to be computed
  std::byte* value_scratch_ = nullptr;
  std::int64_t resampled_row_ = 0;
  std::size_t written_ = 0;  // elements
};

std::size_t Pass::scratch_bytes(std::span<const std::uint64_t> shape) const noexcept {
  return PassRun(*this, 0, shape).scratch_bytes(shape);
}

void Pass::run(std::uint64_t key, const std::byte* item, std::span<const std::uint64_t> shape, std::byte* row,
               std::byte* scratch, bool stream) const noexcept {
  PassRun(*this, key, shape).run(item, row, scratch, stream);
}

}  // namespace pyecho::ops
