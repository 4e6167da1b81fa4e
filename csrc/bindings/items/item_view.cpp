#include "bindings/items/item_view.hpp"

#include <numpy/arrayscalars.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/items/leaf_mismatch.hpp"
#include "core/memory/slot_memory.hpp"
#include "core/memory/stream_copy.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Takes a tuple of objects that can be in no cycle (strings, numbers) away from the garbage collector, which would
// traverse one for each example.
void untrack_if_plain(const py::tuple& objects) {
  const py::ssize_t size = PyTuple_GET_SIZE(objects.ptr());
  for (py::ssize_t i = 0; i < size; ++i) {
    if (PyObject_IS_GC(PyTuple_GET_ITEM(objects.ptr(), i)) != 0) {
      return;
    }
  }
  PyObject_GC_UnTrack(objects.ptr());
}

// True for objects side by side, as in a column of strings.
bool is_object_column(PyObject* column) {
  if (!PyArray_Check(column)) {
    return false;
  }
  PyArrayObject* const array = as_array(column);
  return PyArray_TYPE(array) == NPY_OBJECT && PyArray_NDIM(array) == 1 && PyArray_ISCARRAY_RO(array);
}

py::tuple tuple_of_objects(PyArrayObject* column) {
  const npy_intp rows = PyArray_DIM(column, 0);
  py::tuple objects(rows);
  auto* const* const from = static_cast<PyObject* const*>(PyArray_DATA(column));
  for (npy_intp row = 0; row < rows; ++row) {
    PyTuple_SET_ITEM(objects.ptr(), row, Py_NewRef(from[row] == nullptr ? Py_None : from[row]));
  }
  untrack_if_plain(objects);
  return objects;
}

// Copies elements of a column, one to each slot.
template <std::size_t kBytes>
void copy_column(std::span<std::byte* const> slots, std::size_t slot_offset, const std::byte* from,
                 std::ptrdiff_t stride_bytes) noexcept {
  for (std::byte* const slot : slots) {
    std::memcpy(slot + slot_offset, from, kBytes);
    from += stride_bytes;
  }
}

// For fewer bytes, a call of the system costs more than the faults of pages.
constexpr std::size_t kMuchBytes = std::size_t{64} << 10U;
constexpr std::size_t kMostNumberBytes = 16;  // as ItemView::Source::number has
using CopyColumn = decltype(&copy_column<1>);
// By the binary logarithm of their size, which is a power of two for numbers.
constexpr std::array<CopyColumn, 5> kCopyColumn{&copy_column<1>, &copy_column<2>, &copy_column<4>, &copy_column<8>,
                                                &copy_column<16>};

// True if an array has the dtype and the axes of a leaf, behind so many others.
bool fits(const LeafSpec& leaf, PyArrayObject* array, std::size_t leading_axes) {
  PyArray_Descr* const expected = as_descr(leaf.dtype);
  const auto may_be = [](npy_intp wanted, npy_intp extent) { return wanted == extent || wanted == -1; };
  return std::cmp_equal(PyArray_NDIM(array), leaf.shape.size() + leading_axes) &&
         std::ranges::equal(leaf.shape, std::span(PyArray_DIMS(array) + leading_axes, leaf.shape.size()), may_be) &&
         (PyArray_DESCR(array) == expected || PyArray_EquivTypes(PyArray_DESCR(array), expected) != 0);
}

void describe_row(StridedRow& row, PyArrayObject* array, std::size_t leading_axes) {
  const auto axes = static_cast<std::size_t>(PyArray_NDIM(array)) - leading_axes;
  row.describe(std::span<const npy_intp>(PyArray_DIMS(array) + leading_axes, axes),
               std::span<const npy_intp>(PyArray_STRIDES(array) + leading_axes, axes),
               static_cast<std::size_t>(PyArray_ITEMSIZE(array)));
}

template <class Number>
void store(std::byte* to, Number value) noexcept {
  std::memcpy(to, &value, sizeof(value));
}

// Writes a scalar of NumPy's of the type of this leaf's dtype, which is a plain number. Returns false for all else.
bool write_scalar(const PyArray_Descr* dtype, PyObject* object, std::byte* to) noexcept {
  static_assert(offsetof(PyByteScalarObject, obval) == sizeof(PyObject) &&
                offsetof(PyCDoubleScalarObject, obval) == sizeof(PyObject));
  const int type = dtype->type_num;
  const auto size_bytes = static_cast<std::size_t>(PyDataType_ELSIZE(dtype));
  if (Py_TYPE(object) != dtype->typeobj || !(type <= NPY_CDOUBLE || type == NPY_HALF) ||
      size_bytes > kMostNumberBytes || PyDataType_ISBYTESWAPPED(dtype)) {
    return false;
  }
  std::memcpy(to, reinterpret_cast<const std::byte*>(object) + sizeof(PyObject), size_bytes);
  return true;
}

// Writes a Python number of the kind of this leaf's dtype, or an int where that is float64. Returns false for all else.
// NumPy's PyArray_Pack() would do, but is missing before NumPy 2, and setitem() of a dtype takes twice as long.
bool write_number(const LeafSpec& leaf, PyObject* object, std::byte* to) {
  PyArray_Descr* const dtype = as_descr(leaf.dtype);
  const int type = dtype->type_num;
  std::size_t size_bytes = sizeof(std::int64_t);  // of what a swapped byte order turns around
  if (type == NPY_DOUBLE && (PyFloat_Check(object) || PyLong_Check(object))) {
    store(to, PyFloat_AsDouble(object));
  } else if (type == NPY_BOOL && PyBool_Check(object)) {
    size_bytes = 1;
    *to = std::byte{object == Py_True};
  } else if ((type == NPY_LONG || type == NPY_LONGLONG) && PyLong_Check(object)) {
    store(to, PyLong_AsLongLong(object));
  } else if (type == NPY_CDOUBLE && PyComplex_Check(object)) {
    store(to, PyComplex_AsCComplex(object));
  } else {
    return write_scalar(dtype, object, to);
  }
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(errors().spec_mismatch, leaf.path + ": expected " + leaf.described +
                                      ", got an int that does not fit it; make it smaller in the source, or a str");
  }
  if (PyDataType_ISBYTESWAPPED(dtype)) {
    for (std::byte* end = to + PyDataType_ELSIZE(dtype); to != end; to += size_bytes) {
      std::reverse(to, to + size_bytes);
    }
  }
  return true;
}

}  // namespace

void ItemView::read(py::handle item, bool batched, const py::object& to_array) {
  batched_ = batched;
  rows_ = batched ? kUnknownRows : 1;
  size_bytes_ = 0;
  structure_.flatten(item, owners_);
  for (std::size_t index = 0; index < sources_.size(); ++index) {
    resolve(index, to_array);
  }
  size_bytes_ *= rows();
}

void ItemView::set_rows(const LeafSpec& leaf, Py_ssize_t rows) {
  if (rows_ != kUnknownRows && std::cmp_not_equal(rows, rows_)) {
    raise(errors().spec_mismatch, leaf.path + ": has " + std::to_string(rows) +
                                      " rows, but the leaves before it have " + std::to_string(rows_) +
                                      "; all leaves of a batch need the same length");
  }
  rows_ = static_cast<std::size_t>(rows);
}

void ItemView::resolve(std::size_t index, const py::object& to_array) {
  const LeafSpec& leaf = structure_.leaves()[index];
  Source& source = sources_[index];
  py::object& owner = owners_[index];
  PyObject* const object = owner.ptr();
  source.row_stride_bytes = 0;
  source.is_strided = false;
  source.piece_count = 0;
  if (leaf.by_reference) {
    resolve_references(leaf, owner);
    return;
  }
  if (!batched_ && leaf.shape.empty() && write_number(leaf, object, source.number.data())) {
    source.data = source.number.data();
    size_bytes_ += leaf.size_bytes;
    return;
  }
  if (batched_ && leaf.variable.axes > 0 && (PyList_Check(object) || is_object_column(object))) {
    resolve_rows(leaf, source, owner, to_array);
    return;
  }
  if (!PyArray_Check(object)) {
    py::object array = py::none();
    if (PyArray_CheckScalar(object)) {
      array = py::reinterpret_steal<py::object>(PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr));
    } else if (!to_array.is_none()) {
      array = call_python([&] { return to_array(owner); });
    }
    if (!array || !PyArray_Check(array.ptr())) {
      PyErr_Clear();
      raise_leaf_mismatch(leaf, batched_, owner);
    }
    owner = std::move(array);
  }
  resolve_array(leaf, source, owner);
}

void ItemView::resolve_array(const LeafSpec& leaf, Source& source, py::handle owner) {
  refuse_masked(leaf, owner);
  PyArrayObject* const array = as_array(owner);
  const std::size_t leading_axes = batched_ ? 1 : 0;
  if (leaf.variable.axes > 0) {
    size_bytes_ += add_piece(leaf, source, owner, batched_).size_bytes;
  } else if (!fits(leaf, array, leading_axes)) {
    raise_leaf_mismatch(leaf, batched_, owner);
  } else {
    size_bytes_ += leaf.size_bytes;
    source.is_strided = !PyArray_IS_C_CONTIGUOUS(array);
    if (source.is_strided) {
      describe_row(source.strided, array, leading_axes);
    }
  }
  source.data = static_cast<const std::byte*>(PyArray_DATA(array));
  if (batched_) {
    set_rows(leaf, PyArray_DIM(array, 0));
    source.row_stride_bytes = PyArray_STRIDE(array, 0);
  }
}

// Adds a row of a leaf of variable size, or rows of one shape if `batched`.
const ItemView::Piece& ItemView::add_piece(const LeafSpec& leaf, Source& source, py::handle object, bool batched) {
  PyArrayObject* const array = as_array(object);
  const std::size_t leading_axes = batched ? 1 : 0;
  if (!fits(leaf, array, leading_axes)) {
    raise_leaf_mismatch(leaf, batched, object);
  }
  if (source.piece_count == source.pieces.size()) {
    source.pieces.emplace_back();
  }
  Piece& piece = source.pieces[source.piece_count++];
  const std::span extents(PyArray_DIMS(array) + leading_axes, leaf.shape.size());
  piece.data = static_cast<const std::byte*>(PyArray_DATA(array));
  piece.shape.assign(extents.begin(), extents.end());
  piece.is_strided = !PyArray_IS_C_CONTIGUOUS(array);
  if (piece.is_strided) {
    describe_row(piece.strided, array, leading_axes);
  }
  piece.size_bytes = leaf.variable.element_bytes;
  for (const std::uint64_t extent : piece.shape) {  // of an array that is there
    piece.size_bytes *= extent;
  }
  if (piece.size_bytes > leaf.variable.max_bytes) {
    raise(errors().spec_mismatch, leaf.path + ": has " + std::to_string(piece.size_bytes) + " bytes (" +
                                      describe_object(object) + "), and max_bytes of its Field is " +
                                      std::to_string(leaf.variable.max_bytes) +
                                      "; raise it, or make the item smaller in the source");
  }
  return piece;
}

// A column of arrays, one for each row.
void ItemView::resolve_rows(const LeafSpec& leaf, Source& source, py::object& owner, const py::object& to_array) {
  const auto arrays = owned<py::list>(PySequence_List(owner.ptr()));  // a copy: the other is the user's
  set_rows(leaf, static_cast<Py_ssize_t>(arrays.size()));
  for (std::size_t row = 0; row < arrays.size(); ++row) {
    const py::object array = PyArray_Check(arrays[row].ptr()) != 0
                                 ? py::object(arrays[row])
                                 : call_python([&] { return to_array(py::object(arrays[row])); });
    if (PyArray_Check(array.ptr()) == 0) {
      raise_leaf_mismatch(leaf, false, arrays[row]);
    }
    refuse_masked(leaf, array);
    size_bytes_ += add_piece(leaf, source, array, false).size_bytes / arrays.size();
    arrays[row] = array;
  }
  owner = arrays;
}

void ItemView::resolve_references(const LeafSpec& leaf, py::object& owner) {
  PyObject* const column = owner.ptr();
  if (!batched_) {
    refuse_array(leaf, owner);
    return;
  }
  if (PyArray_Check(column)) {
    refuse_masked(leaf, owner);
  }
  if (is_object_column(column)) {
    owner = tuple_of_objects(as_array(column));
  } else if (PyArray_Check(column) && PyArray_NDIM(as_array(column)) == 1) {
    owner = py::tuple(owned(PyArray_ToList(as_array(column))));
  } else if (PyList_Check(column) || PyTuple_Check(column)) {
    owner = py::tuple(owner);  // a copy, because a list could shrink while this thread waits for a slot
  } else {
    raise(errors().spec_mismatch,
          leaf.path + ": expected a list, tuple or array with one object per row, got " + describe_object(column));
  }
  set_rows(leaf, PyTuple_GET_SIZE(owner.ptr()));
}

void ItemView::copy_rows(std::size_t first, const SlotLayout& layout, bool streamed, std::span<std::byte* const> slots,
                         const HostMemory* memory) const {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const SlotLayout::Leaf& leaf = layout.leaves()[i];
    const Source& source = sources_[i];
    const std::byte* from = source.data + static_cast<std::ptrdiff_t>(first) * source.row_stride_bytes;
    if (leaf.variable.axes > 0) {
      for (std::size_t k = 0; k < slots.size(); ++k) {
        const bool alike = source.piece_count == 1;
        const Piece& piece = source.pieces[alike ? 0 : first + k];
        const auto offset = alike ? static_cast<std::ptrdiff_t>(first + k) * source.row_stride_bytes : 0;
        const auto& before = *reinterpret_cast<const VariableItem*>(slots[k] + leaf.slot_offset);
        const bool is_new = before.memory_bytes < piece.size_bytes;
        std::byte* const to = SlotMemory::allocate(slots[k], leaf, piece.shape);
        if (to == nullptr) {
          throw std::bad_alloc();
        }
        if (memory != nullptr && !piece.is_strided && piece.size_bytes >= kMuchBytes) {
          if (!memory->copy_in(to, piece.data + offset, piece.size_bytes, is_new)) {
            throw std::bad_alloc();
          }
        } else if (piece.is_strided) {
          piece.strided.copy(to, piece.data + offset, false);
        } else {
          std::memcpy(to, piece.data + offset, piece.size_bytes);
        }
      }
      continue;
    }
    if (!source.is_strided && leaf.size_bytes <= kMostNumberBytes && std::has_single_bit(leaf.size_bytes)) {
      kCopyColumn[static_cast<std::size_t>(std::countr_zero(leaf.size_bytes))](slots, leaf.slot_offset, from,
                                                                               source.row_stride_bytes);
      continue;
    }
    for (std::byte* const slot : slots) {
      std::byte* const to = slot + leaf.slot_offset;
      if (source.is_strided) {
        source.strided.copy(to, from, streamed);
      } else if (leaf.size_bytes > 0) {
        copy_bytes(to, from, leaf.size_bytes, streamed);
      }
      from += source.row_stride_bytes;
    }
  }
}

py::tuple ItemView::references(std::size_t row) const {
  auto found = owned<py::tuple>(PyTuple_New(std::ssize(structure_.reference_leaves())));
  for (Py_ssize_t i = 0; const std::size_t leaf : structure_.reference_leaves()) {
    PyObject* const owner = owners_[leaf].ptr();
    PyObject* const object = batched_ ? PyTuple_GET_ITEM(owner, static_cast<Py_ssize_t>(row)) : owner;
    PyTuple_SET_ITEM(found.ptr(), i++, Py_NewRef(object));
  }
  untrack_if_plain(found);
  return found;
}

}  // namespace pyecho::bindings
