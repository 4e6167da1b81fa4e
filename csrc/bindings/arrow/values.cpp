#include "bindings/arrow/values.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#include "bindings/errors.hpp"
#include "bindings/numpy_api.hpp"

namespace py = pybind11;

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

// The bytes of one row.
struct Text {
  const char* data;  // null: outside of its buffer
  std::int64_t size;
};

template <class Offset>
Text text_between(const ArrowArray& array, std::int64_t row) noexcept {
  std::array<Offset, 2> ends{};
  std::memcpy(ends.data(), static_cast<const Offset*>(array.buffers[1]) + array.offset + row, sizeof(ends));
  const bool empty = ends[0] == ends[1];
  if (ends[0] < 0 || ends[1] < ends[0] || (array.buffers[2] == nullptr && !empty)) {
    return {nullptr, 0};
  }
  return empty ? Text{"", 0} : Text{static_cast<const char*>(array.buffers[2]) + ends[0], ends[1] - ends[0]};
}

// A view of 16 bytes: the size, then up to 12 bytes of text, or the first 4 of them, the number of a buffer and the
// place there. The last buffer has the sizes of the others.
Text text_in_view(const ArrowArray& array, std::int64_t row) noexcept {
  constexpr std::int32_t kInline = 12;
  struct View {
    std::int32_t size, prefix, buffer, place;
  } view{};
  const char* const at = static_cast<const char*>(array.buffers[1]) + (array.offset + row) * std::int64_t{sizeof(View)};
  std::memcpy(&view, at, sizeof(view));
  if (view.size >= 0 && view.size <= kInline) {
    return {at + sizeof(view.size), view.size};
  }
  const std::int64_t buffers = array.n_buffers - 3;
  const auto* const sizes = static_cast<const std::int64_t*>(array.buffers[array.n_buffers - 1]);
  if (view.size < 0 || view.buffer < 0 || view.buffer >= buffers || view.place < 0 || sizes == nullptr ||
      array.buffers[2 + view.buffer] == nullptr || view.place + std::int64_t{view.size} > sizes[view.buffer]) {
    return {nullptr, 0};
  }
  return {static_cast<const char*>(array.buffers[2 + view.buffer]) + view.place, view.size};
}

Text text_at(const ArrowType& type, const ArrowArray& array, std::int64_t row) noexcept {
  switch (type.kind) {
    case ArrowKind::kText32:
      return text_between<std::int32_t>(array, row);
    case ArrowKind::kText64:
      return text_between<std::int64_t>(array, row);
    default:
      return text_in_view(array, row);
  }
}

}  // namespace

py::object new_objects(std::int64_t count) {
  npy_intp extent = count;
  return owned(PyArray_SimpleNew(1, &extent, NPY_OBJECT));
}

PyObject** objects_in(const py::object& array) noexcept {
  return static_cast<PyObject**>(PyArray_DATA(as_array(array)));
}

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

py::object read_objects(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count) {
  py::object made = new_objects(count);
  PyObject** next = objects_in(made);
  for (std::int64_t row = begin; row < begin + count; ++row, ++next) {
    PyObject* object = nullptr;
    if (type.kind == ArrowKind::kNull || is_null(array, row)) {
      object = Py_NewRef(Py_None);
    } else {
      const Text text = text_at(type, array, row);
      if (text.data == nullptr) {
        raise(errors().echo_error,
              type.path + ": the producer of the Arrow stream has sent a text that lies outside of its buffer");
      }
      object = type.is_str ? PyUnicode_DecodeUTF8(text.data, text.size, nullptr)
                           : PyBytes_FromStringAndSize(text.data, text.size);
    }
    throw_if(object == nullptr);
    Py_XSETREF(*next, object);  // NumPy may have put None there
  }
  return made;
}

py::object with_none(const py::object& objects) {
  const npy_intp count = PyArray_SIZE(as_array(objects));
  py::object made = new_objects(count + 1);
  PyObject* const* const from = objects_in(objects);
  PyObject** const to = objects_in(made);
  for (npy_intp index = 0; index <= count; ++index) {
    Py_XSETREF(to[index], Py_NewRef(index < count ? from[index] : Py_None));
  }
  return made;
}

}  // namespace pyecho::bindings
