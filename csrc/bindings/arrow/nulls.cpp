#include "bindings/arrow/nulls.hpp"

#include <cstddef>
#include <cstring>

#include "bindings/numpy_api.hpp"

namespace pyecho::bindings {
namespace {

// Returns the first of these rows that is null itself, `count` if none is.
std::int64_t first_invalid(const ArrowArray& array, std::int64_t begin, std::int64_t count) noexcept {
  if (!has_nulls(array)) {
    return count;
  }
  const auto* const bits = static_cast<const unsigned char*>(array.buffers[0]);
  const std::int64_t first = array.offset + begin;
  for (std::int64_t bit = first; bit < first + count; ++bit) {
    if (bit % 8 == 0 && bits[bit / 8] == 0xFF) {
      bit += 7;
    } else if (!bit_at(bits, bit)) {
      return bit - first;
    }
  }
  return count;
}

}  // namespace

std::int64_t dictionary_index(const ArrowType& type, const ArrowArray& array, std::int64_t row) {
  const auto at = [&]<class Index>(Index) {
    Index index{};
    std::memcpy(&index, static_cast<const Index*>(array.buffers[1]) + array.offset + row, sizeof(index));
    return static_cast<std::int64_t>(index);
  };
  const bool is_signed = PyTypeNum_ISSIGNED(as_descr(type.dtype)->type_num);
  switch (PyDataType_ELSIZE(as_descr(type.dtype))) {
    case 1:
      return is_signed ? at(std::int8_t{}) : at(std::uint8_t{});
    case 2:
      return is_signed ? at(std::int16_t{}) : at(std::uint16_t{});
    case 4:
      return is_signed ? at(std::int32_t{}) : at(std::uint32_t{});
    default:
      return at(std::int64_t{});  // unsigned ones of no dictionary that fits into memory become negative
  }
}

std::int64_t first_null(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count,
                        const ArrowType*& column) {
  if (type.by_reference) {
    return count;
  }
  const auto nearer = [&](std::int64_t row) {
    if (row < count) {
      count = row;
      column = &type;
    }
  };
  nearer(first_invalid(array, begin, count));
  if (type.kind == ArrowKind::kStruct) {
    for (std::size_t index = 0; index < type.children.size(); ++index) {
      count = first_null(type.children[index], *array.children[index], array.offset + begin, count, column);
    }
  } else if (type.kind == ArrowKind::kList && type.size > 0) {
    const std::int64_t first = (array.offset + begin) * type.size;
    const ArrowType* unused = nullptr;
    nearer(first_null(type.children[0], *array.children[0], first, count * type.size, unused) / type.size);
  } else if (type.kind == ArrowKind::kDictionary) {
    const ArrowType* unused = nullptr;
    const ArrowArray& values = *array.dictionary;
    if (first_null(type.children[0], values, 0, values.length, unused) < values.length) {
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t index = dictionary_index(type, array, begin + row);
        if (index >= 0 && index < values.length && first_null(type.children[0], values, index, 1, unused) == 0) {
          nearer(row);
        }
      }
    }
  }
  return count;
}

}  // namespace pyecho::bindings
