#include "bindings/arrow/batch.hpp"

#include <pybind11/numpy.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/arrow/values.hpp"
#include "bindings/encoding.hpp"
#include "bindings/errors.hpp"
#include "bindings/numpy_api.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Lengths and offsets below this can be added and multiplied by small numbers without overflow.
constexpr std::int64_t kMaxArrowLength = std::int64_t{1} << 48;

// pybind11 sets an exception aside while the array is released, which may run a producer's Python code.
py::object owner_of(ArrowArray& array) {
  auto kept = std::make_unique<ArrowOwned<ArrowArray>>(array);
  py::capsule capsule(kept.get(), [](void* dying) { delete static_cast<ArrowOwned<ArrowArray>*>(dying); });
  std::ignore = kept.release();  // the capsule's
  return capsule;
}

std::int64_t buffers_of(ArrowKind kind) noexcept {
  switch (kind) {
    case ArrowKind::kNull:
      return 0;  // or one of nulls, as Polars sends
    case ArrowKind::kStruct:
    case ArrowKind::kList:
      return 1;
    case ArrowKind::kText32:
    case ArrowKind::kText64:
    case ArrowKind::kView:
      return 3;  // of views: at least
    default:
      return 2;
  }
}

void require_fit(bool fits, const ArrowType& type) {
  if (!fits) {
    raise(errors().echo_error, type.path +
                                   ": the producer of the Arrow stream has sent an array that does not fit its "
                                   "schema");
  }
}

// Raises EchoError if reading the array would read outside of what the structs tell.
void check_array(const ArrowType& type, const ArrowArray& array) {
  const std::int64_t buffers = buffers_of(type.kind);
  const auto children = static_cast<std::int64_t>(type.kind == ArrowKind::kDictionary ? 0 : type.children.size());
  require_fit(array.length >= 0 && array.length < kMaxArrowLength && array.offset >= 0 &&
                  array.offset < kMaxArrowLength && array.n_children == children &&
                  (children == 0 || array.children != nullptr) && (buffers == 0 || array.buffers != nullptr) &&
                  (array.n_buffers == buffers || (type.kind == ArrowKind::kNull && array.n_buffers == 1) ||
                   (type.kind == ArrowKind::kView && array.n_buffers > buffers)),
              type);
  require_fit(buffers < 2 || array.length == 0 || type.size == 0 || array.buffers[1] != nullptr, type);
  std::int64_t values = 0;  // that must be there, or rows of each child
  require_fit(!__builtin_mul_overflow(array.offset + array.length, type.size, &values) && values < kMaxArrowLength,
              type);
  for (std::int64_t index = 0; index < children; ++index) {
    const ArrowType& child = type.children[static_cast<std::size_t>(index)];
    require_fit(array.children[index] != nullptr && array.children[index]->length >= values, child);
    check_array(child, *array.children[index]);
  }
  if (type.kind == ArrowKind::kDictionary) {
    require_fit(array.dictionary != nullptr, type);
    check_array(type.children[0], *array.dictionary);
  }
}

const void* first_buffer_of(const ArrowArray& array) noexcept {
  for (std::int64_t index = 1; index < array.n_buffers; ++index) {  // the one before is of nulls
    if (array.buffers[index] != nullptr) {
      return array.buffers[index];
    }
  }
  for (std::int64_t index = 0; index < array.n_children; ++index) {
    if (const void* const found = first_buffer_of(*array.children[index]); found != nullptr) {
      return found;
    }
  }
  return nullptr;
}

py::object read_bits(const ArrowArray& array, std::int64_t begin, std::int64_t count) {
  const auto* const bits = static_cast<const unsigned char*>(array.buffers[1]);
  return array_of<bool>(static_cast<std::size_t>(count), [&](std::size_t row) {
    return bit_at(bits, array.offset + begin + static_cast<std::int64_t>(row));
  });
}

// Gives the values of `count` rows, side by side, the axes of their type.
py::object shaped(const ArrowType& type, const py::object& values, std::int64_t count) {
  std::vector<npy_intp> extents{count};
  extents.insert(extents.end(), type.shape.begin(), type.shape.end());
  const npy_intp* const before = PyArray_DIMS(as_array(values));
  extents.insert(extents.end(), before + 1, before + PyArray_NDIM(as_array(values)));
  if (extents.size() > max_axes()) {
    raise(errors().config_error,
          type.path + " has more than " + std::to_string(max_axes() - 1) + " axes in a row; make columns of its parts");
  }
  PyArray_Dims shape{.ptr = extents.data(), .len = static_cast<int>(extents.size())};
  const py::object rows = owned(PyArray_Newshape(as_array(values), &shape, NPY_CORDER));
  return type.axes.is_none() ? rows : rows.attr("transpose")(type.axes);
}

}  // namespace

ArrowBatch::ArrowBatch(const ArrowType& type, ArrowArray& array)
    : type_(type),
      owner_(owner_of(array)),
      array_(static_cast<ArrowOwned<ArrowArray>*>(PyCapsule_GetPointer(owner_.ptr(), nullptr))->get()) {
  check_array(type_, *array_);
}

std::int64_t ArrowBatch::first_null(std::int64_t begin, const ArrowType*& column) const {
  return begin + bindings::first_null(type_, *array_, begin, rows() - begin, column);
}

const void* ArrowBatch::first_buffer() const noexcept { return first_buffer_of(*array_); }

py::object ArrowBatch::read(std::int64_t begin, std::int64_t count) { return read(type_, *array_, begin, count); }

py::object ArrowBatch::read(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count) {
  switch (type.kind) {
    case ArrowKind::kPlain:
      return read_plain(type, array, begin, count);
    case ArrowKind::kBits:
      return read_bits(array, begin, count);
    case ArrowKind::kList:
      return shaped(type,
                    read(type.children[0], *array.children[0], (array.offset + begin) * type.size, count * type.size),
                    count);
    case ArrowKind::kStruct:
      return read_struct(type, array, begin, count);
    case ArrowKind::kDictionary:
      return read_dictionary(type, array, begin, count);
    case ArrowKind::kVarying32:
      return read_varying<std::int32_t>(type, array, begin, count);
    case ArrowKind::kVarying64:
      return read_varying<std::int64_t>(type, array, begin, count);
    default:
      return read_objects(type, array, begin, count);
  }
}

template <class Offset>
py::object ArrowBatch::read_varying(const ArrowType& type, const ArrowArray& array, std::int64_t begin,
                                    std::int64_t count) {
  const ArrowArray& values = *array.children[0];
  py::object made = new_objects(count);
  for (std::int64_t row = 0; row < count; ++row) {
    py::object object = py::none();
    if (!is_null(array, begin + row)) {
      std::array<Offset, 2> ends{};
      require_fit(array.buffers[1] != nullptr, type);
      std::memcpy(ends.data(), static_cast<const Offset*>(array.buffers[1]) + array.offset + begin + row, sizeof(ends));
      const std::int64_t size = ends[1] - ends[0];
      require_fit(ends[0] >= 0 && size >= 0 && ends[1] <= values.length, type);
      const ArrowType* column = nullptr;
      if (bindings::first_null(type.children[0], values, ends[0], size, column) < size) {
        raise(errors().config_error,
              type.path + " has a null in a list; fill it in the source (in pyarrow, fill_null)");
      }
      object = read(type.children[0], values, ends[0], size);
    }
    Py_XSETREF(objects_in(made)[row], object.release().ptr());
  }
  return made;
}

py::object ArrowBatch::read_struct(const ArrowType& type, const ArrowArray& array, std::int64_t begin,
                                   std::int64_t count) {
  py::dict columns;
  for (std::size_t index = 0; index < type.children.size(); ++index) {
    columns[type.names[index]] = read(type.children[index], *array.children[index], array.offset + begin, count);
  }
  return columns;
}

py::object ArrowBatch::read_plain(const ArrowType& type, const ArrowArray& array, std::int64_t begin,
                                  std::int64_t count) const {
  npy_intp values = count * type.size;
  const auto* data = static_cast<const std::byte*>(array.buffers[1]);
  if (data != nullptr) {
    data += (array.offset + begin) * type.size * PyDataType_ELSIZE(as_descr(type.dtype));
  }
  py::object view = owned(PyArray_NewFromDescr(&PyArray_Type, as_descr(type.dtype.inc_ref()), 1, &values, nullptr,
                                               const_cast<std::byte*>(data), NPY_ARRAY_C_CONTIGUOUS, nullptr));
  PyArray_UpdateFlags(as_array(view), NPY_ARRAY_ALIGNED);
  if (data != nullptr) {  // else there are no values, and the array is NumPy's
    throw_if(PyArray_SetBaseObject(as_array(view), owner_.inc_ref().ptr()) != 0);
  }
  if (!type.cast.is_none()) {
    view = view.attr("astype")(type.cast);
  }
  return type.shape.empty() ? view : shaped(type, view, count);
}

// The dictionary is decoded once for each batch. The None behind its values stands for nulls.
py::object ArrowBatch::read_dictionary(const ArrowType& type, const ArrowArray& array, std::int64_t begin,
                                       std::int64_t count) {
  const ArrowArray& values = *array.dictionary;
  py::object& decoded = dictionaries_[&values];
  if (!decoded) {
    decoded = read(type.children[0], values, 0, values.length);
    if (type.by_reference) {
      decoded = with_none(decoded);
    }
  }
  const py::object indices = array_of<std::int64_t>(static_cast<std::size_t>(count), [&](std::size_t i) {
    const std::int64_t row = begin + static_cast<std::int64_t>(i);
    const bool null = type.by_reference && is_null(array, row);
    const std::int64_t index = null ? values.length : dictionary_index(type, array, row);
    require_fit(null || (index >= 0 && index < values.length), type);
    return index;
  });
  return owned(PyArray_TakeFrom(as_array(decoded), indices.ptr(), 0, nullptr, NPY_RAISE));
}

}  // namespace pyecho::bindings
