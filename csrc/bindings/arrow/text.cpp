#include "bindings/arrow/text.hpp"

#include <array>
#include <cstring>

#include "bindings/arrow/nulls.hpp"
#include "bindings/errors.hpp"
#include "bindings/numpy_api.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

py::object new_objects(std::int64_t count) {
  npy_intp extent = count;
  return owned(PyArray_SimpleNew(1, &extent, NPY_OBJECT));
}

PyObject** objects_in(const py::object& array) noexcept {
  return static_cast<PyObject**>(PyArray_DATA(as_array(array)));
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
