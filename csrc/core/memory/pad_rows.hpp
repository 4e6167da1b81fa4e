// Copies rows of several shapes into an array with places for the largest, and fills the places that are left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "core/memory/sizes.hpp"

namespace pyecho {

class RowPadding {
 public:
  using Extents = std::span<const std::uint64_t>;

  // `places`: the shape of each row in `out`. `pad`: the bytes of the element that fills it.
  RowPadding(Extents places, std::span<const std::byte> pad)
      : places_(places), pad_(pad), is_uniform_(std::ranges::all_of(pad, std::bind_front(std::equal_to(), pad[0]))) {}

  [[nodiscard]] std::size_t row_bytes() const noexcept { return bytes_of(places_); }

  // Writes a row of this shape, which has as many axes as the places, and no extent above theirs. Returns the end of the
  // elements that were read.
  const std::byte* write(std::byte* out, const std::byte* elements, Extents shape) const noexcept {
    return write_axis(out, elements, shape, 0);
  }

 private:
  [[nodiscard]] std::size_t bytes_of(Extents extents) const noexcept { return bytes_of_array(pad_.size(), extents); }

  const std::byte* write_axis(std::byte* out, const std::byte* elements, Extents shape,
                              std::size_t axis) const noexcept {
    const std::size_t step = bytes_of(places_.subspan(axis + 1));
    const std::size_t used = shape[axis] * step;
    if (std::ranges::equal(shape.subspan(axis + 1), places_.subspan(axis + 1))) {  // they follow one another in both
      if (used > 0) {
        std::memcpy(out, elements, used);
      }
      elements += used;
    } else {
      for (std::size_t done = 0; done < used; done += step) {
        elements = write_axis(out + done, elements, shape, axis + 1);
      }
    }
    fill(out + used, places_[axis] * step - used);
    return elements;
  }

  void fill(std::byte* out, std::size_t size_bytes) const noexcept {
    if (is_uniform_ && size_bytes > 0) {
      std::memset(out, std::to_integer<int>(pad_[0]), size_bytes);
      return;
    }
    for (std::size_t done = 0; done < size_bytes;) {  // by what is there already, which doubles
      const std::size_t more = done == 0 ? pad_.size() : std::min(done, size_bytes - done);
      std::memcpy(out + done, done == 0 ? pad_.data() : out, more);
      done += more;
    }
  }

  const Extents places_;
  const std::span<const std::byte> pad_;
  const bool is_uniform_;
};

}  // namespace pyecho
