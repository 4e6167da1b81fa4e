#include "bindings/item_view.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/waiting.hpp"
#include "core/memory/stream_copy.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

std::string describe_object(py::handle object) {
  if (PyArray_Check(object.ptr())) {
    return std::string(py::str(object.attr("dtype"))) + " array of shape " +
           std::string(py::repr(object.attr("shape")));
  }
  return py::str(py::type::handle_of(object).attr("__name__"));
}

// Returns a remedy for an array that differs from the leaf only in the length of its first axis; "" for other arrays.
const char* remedy_for_length(const LeafSpec& leaf, ItemKind kind, py::handle got) {
  if (!PyArray_Check(got.ptr()) || leaf.shape.empty() || kind != ItemKind::kExample) {
    return "";
  }
  PyArrayObject* const array = as_array(got.ptr());
  const auto* const dims = PyArray_DIMS(array);
  if (!std::cmp_equal(PyArray_NDIM(array), leaf.shape.size()) || dims[0] == leaf.shape[0] ||
      !std::equal(leaf.shape.begin() + 1, leaf.shape.end(), dims + 1)) {
    return "";
  }
  return dims[0] > leaf.shape[0] ? "pad or crop examples to one length in the source"
                                 : "pad or crop examples to one length in the source; if items are batches, and this "
                                   "is a shorter last one, pass unbatch=True to the loader";
}

[[noreturn]] void raise_leaf_mismatch(const LeafSpec& leaf, ItemKind kind, py::handle got) {
  const std::string remedy = remedy_for_length(leaf, kind, got);
  raise(errors().spec_mismatch, leaf.path + ": expected " + (kind == ItemKind::kBatch ? "rows, each: " : "") +
                                    leaf.describe() + ", got " + describe_object(got) +
                                    "; every item must be like the first (" +
                                    (remedy.empty() ? "convert, crop or pad in the source" : remedy) + ")");
}

// Raises ConfigError for a masked array, because it would lose its mask.
void refuse_masked(const LeafSpec& leaf, py::handle array) {
  if (PyArray_CheckExact(array.ptr())) {
    return;
  }
  // No guarded initialisation: the import gives up the GIL, which a thread that waits for the guard would keep.
  static PyObject* masked = nullptr;
  if (masked == nullptr) {
    masked = py::object(py::module_::import("numpy.ma").attr("MaskedArray")).release().ptr();
  }
  if (PyObject_IsInstance(array.ptr(), masked) == 1) {
    raise(errors().config_error, leaf.path +
                                     ": masked arrays would lose their mask in a batch; use .filled(), or pass "
                                     "data and mask");
  }
}

// Raises SpecMismatch for an array where the first item had none, because batches would contain a list of arrays there.
void refuse_array(const LeafSpec& leaf, py::handle object) {
  if (leaf.seen.empty() || PyUnicode_CheckExact(object.ptr()) || object.is_none() ||
      !py::hasattr(py::type::handle_of(object), "__dlpack__")) {
    return;
  }
  if (PyArray_Check(object.ptr()) && PyDataType_REFCHK(PyArray_DESCR(as_array(object.ptr())))) {
    return;
  }
  raise(errors().spec_mismatch,
        leaf.path + ": the first item has " + (leaf.seen == "NoneType" ? "None" : "an object of type " + leaf.seen) +
            " here, so the leaf travels by reference, but now comes " + describe_object(object) +
            "; give every item an array (where there is none: zeros, and a flag), or none");
}

template <class T>
void store(std::array<std::byte, 16>& scalar, T value) noexcept {
  std::memcpy(scalar.data(), &value, sizeof(value));
}

bool shape_fits(const LeafSpec& leaf, PyArrayObject* array, std::size_t leading_axes) noexcept {
  if (static_cast<std::size_t>(PyArray_NDIM(array)) != leaf.shape.size() + leading_axes) {
    return false;
  }
  const npy_intp* const dims = PyArray_DIMS(array) + leading_axes;
  for (std::size_t axis = 0; axis < leaf.shape.size(); ++axis) {
    if (dims[axis] != leaf.shape[axis]) {
      return false;
    }
  }
  return true;
}

}  // namespace

ItemView::ItemView(const Structure& structure, py::handle item, ItemKind kind, const py::object& to_array)
    : structure_(structure), kind_(kind), rows_known_(kind == ItemKind::kExample) {
  const std::vector<LeafSpec>& leaves = structure.leaves();
  if (leaves.size() > Structure::kInlineLeaves) {
    many_sources_ = std::make_unique<Source[]>(leaves.size());
  }
  sources_ = many_sources_ ? many_sources_.get() : inline_sources_.data();
  std::array<PyObject*, Structure::kInlineLeaves> inline_objects{};
  std::vector<PyObject*> many_objects(many_sources_ ? leaves.size() : 0);
  PyObject** const objects = many_sources_ ? many_objects.data() : inline_objects.data();
  try {
    structure.flatten(item, objects, &count_);
  } catch (...) {
    for (std::size_t i = 0; i < count_; ++i) {
      Py_DECREF(objects[i]);
    }
    throw;
  }
  for (std::size_t i = 0; i < count_; ++i) {
    sources_[i].owner = objects[i];
  }
  try {
    for (std::size_t i = 0; i < count_; ++i) {
      resolve(leaves[i], sources_[i], to_array);
      size_bytes_ += leaves[i].size_bytes;
    }
  } catch (...) {
    release();
    throw;
  }
  size_bytes_ *= rows_;
}

ItemView::~ItemView() { release(); }

void ItemView::release() noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    Py_CLEAR(sources_[i].owner);
  }
  count_ = 0;
}

void ItemView::set_rows(const LeafSpec& leaf, std::size_t rows) {
  if (rows_known_ && rows != rows_) {
    raise(errors().spec_mismatch, leaf.path + ": has " + std::to_string(rows) +
                                      " rows, but the leaves before it have " + std::to_string(rows_) +
                                      "; all leaves of a batch need the same length");
  }
  rows_ = rows;
  rows_known_ = true;
}

void ItemView::resolve(const LeafSpec& leaf, Source& source, const py::object& to_array) {
  if (leaf.by_reference) {
    resolve_references(leaf, source);
    return;
  }
  if (!PyArray_Check(source.owner)) {
    if (kind_ == ItemKind::kExample && resolve_number(leaf, source)) {
      return;
    }
    py::object array = py::none();
    if (PyArray_CheckScalar(source.owner)) {
      array = py::reinterpret_steal<py::object>(PyArray_FromAny(source.owner, nullptr, 0, 0, 0, nullptr));
    } else if (!to_array.is_none()) {
      array = call_python([&] { return to_array(py::handle(source.owner)); });
    }
    if (!array || !PyArray_Check(array.ptr())) {
      PyErr_Clear();
      raise_leaf_mismatch(leaf, kind_, source.owner);
    }
    Py_SETREF(source.owner, array.release().ptr());
  }
  refuse_masked(leaf, source.owner);
  resolve_array(leaf, source);
}

void ItemView::resolve_array(const LeafSpec& leaf, Source& source) {
  PyArrayObject* const array = as_array(source.owner);
  const std::size_t leading_axes = kind_ == ItemKind::kBatch ? 1 : 0;
  PyArray_Descr* const expected = as_descr(leaf.dtype.ptr());
  if (!shape_fits(leaf, array, leading_axes) ||
      (PyArray_DESCR(array) != expected && PyArray_EquivTypes(PyArray_DESCR(array), expected) == 0)) {
    raise_leaf_mismatch(leaf, kind_, source.owner);
  }
  source.data = static_cast<const std::byte*>(PyArray_DATA(array));
  source.row_stride_bytes = static_cast<std::ptrdiff_t>(leaf.size_bytes);
  if (kind_ == ItemKind::kBatch) {
    set_rows(leaf, static_cast<std::size_t>(PyArray_DIM(array, 0)));
    source.row_stride_bytes = PyArray_STRIDE(array, 0);
  }
  if (!PyArray_IS_C_CONTIGUOUS(array)) {
    source.strided = std::make_unique<StridedRow>(std::span(leaf.shape),
                                                  std::span(PyArray_STRIDES(array) + leading_axes, leaf.shape.size()),
                                                  static_cast<std::size_t>(PyDataType_ELSIZE(expected)));
  }
}

void ItemView::resolve_references(const LeafSpec& leaf, Source& source) {
  if (kind_ == ItemKind::kExample) {
    refuse_array(leaf, source.owner);
    return;
  }
  PyObject* const column = source.owner;
  PyObject* rows = nullptr;  // a copy, because a list could shrink while this thread waits for a slot
  if (PyList_Check(column) || PyTuple_Check(column)) {
    rows = PySequence_Tuple(column);
  } else if (PyArray_Check(column) && PyArray_NDIM(as_array(column)) == 1) {
    rows = PySequence_Tuple(py::reinterpret_steal<py::object>(PyArray_ToList(as_array(column))).ptr());
  } else {
    raise(errors().spec_mismatch,
          leaf.path + ": expected a list, tuple or array with one object per row, got " + describe_object(column));
  }
  if (rows == nullptr) {
    throw py::error_already_set();
  }
  Py_SETREF(source.owner, rows);
  set_rows(leaf, static_cast<std::size_t>(PyTuple_GET_SIZE(rows)));
}

// Stores a Python number without going through NumPy. Returns false if it does not match `leaf`.
bool ItemView::resolve_number(const LeafSpec& leaf, Source& source) const {
  if (!leaf.shape.empty() || PyDataType_ISBYTESWAPPED(as_descr(leaf.dtype.ptr()))) {
    return false;
  }
  PyObject* const object = source.owner;
  switch (as_descr(leaf.dtype.ptr())->type_num) {
    case NPY_DOUBLE:
      if (!PyFloat_Check(object) && !PyLong_Check(object)) {
        return false;
      }
      store(source.scalar, PyFloat_AsDouble(object));
      break;
    case NPY_BOOL:
      if (!PyBool_Check(object)) {
        return false;
      }
      store(source.scalar, object == Py_True);
      break;
    case NPY_LONG:
    case NPY_LONGLONG:
      if (!PyLong_Check(object)) {
        return false;
      }
      store(source.scalar, static_cast<std::int64_t>(PyLong_AsLongLong(object)));
      break;
    case NPY_CDOUBLE: {
      if (!PyComplex_Check(object)) {
        return false;
      }
      const Py_complex value = PyComplex_AsCComplex(object);
      store(source.scalar, value);
      break;
    }
    default:
      return false;
  }
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(errors().spec_mismatch, leaf.path + ": expected " + leaf.describe() +
                                      ", got an int that does not fit it; make it smaller in the source, or a str");
  }
  source.data = source.scalar.data();
  return true;
}

void ItemView::copy_row(std::size_t row, const EchoBuffer& buffer, std::uint32_t slot) const noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    const SlotLayout::Leaf& leaf = buffer.layout().leaves()[i];
    if (leaf.size_bytes == 0) {
      continue;
    }
    const Source& source = sources_[i];
    std::byte* const to = buffer.slot_data(slot) + leaf.slot_offset;
    const std::byte* const from = source.data + static_cast<std::ptrdiff_t>(row) * source.row_stride_bytes;
    if (source.strided) {
      source.strided->copy(to, from, buffer.stream_slots());
    } else {
      copy_bytes(to, from, leaf.size_bytes, buffer.stream_slots());
    }
  }
}

py::tuple ItemView::references(std::size_t row) const {
  py::list found;
  for (std::size_t i = 0; i < count_; ++i) {
    if (structure_.leaves()[i].by_reference) {
      PyObject* const owner = sources_[i].owner;
      found.append(
          py::handle(kind_ == ItemKind::kExample ? owner : PyTuple_GET_ITEM(owner, static_cast<Py_ssize_t>(row))));
    }
  }
  return {found};
}

}  // namespace pyecho::bindings
