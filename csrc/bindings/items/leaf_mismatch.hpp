// Errors of items that are not like the first: what was needed, what came, and what to do.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/items/structure.hpp"
#include "bindings/numpy_api.hpp"

namespace pyecho::bindings {

namespace py = pybind11;

inline std::string describe_object(py::handle object) {
  if (PyArray_Check(object.ptr())) {
    return std::string(py::str(object.attr("dtype"))) + " array of shape " +
           std::string(py::repr(object.attr("shape")));
  }
  return py::str(py::type::handle_of(object).attr("__name__"));
}

// Returns a remedy for an array that differs from the leaf.
inline std::string remedy_for(const LeafSpec& leaf, bool batched, py::handle got) {
  if (batched) {
    return "convert, crop or pad in the source";
  }
  const std::span<const npy_intp> had = leaf.shape;
  if (PyArray_Check(got.ptr()) && !had.empty() && std::cmp_equal(PyArray_NDIM(as_array(got)), had.size())) {
    const std::span has(PyArray_DIMS(as_array(got)), had.size());
    if (has[0] != had[0] && std::ranges::equal(had.subspan(1), has.subspan(1))) {
      const std::string remedy =
          "pad or crop examples to one length in the source, or in a loader's collate_fn, or pass fields=";
      return has[0] > had[0] ? remedy
                             : remedy +
                                   "; if items are batches, and this is a shorter last one, pass unbatch=True to "
                                   "the loader";
    }
  }
  return "convert, crop or pad in the source, or in a loader's collate_fn; where examples differ in size, pass fields=";
}

[[noreturn]] inline void raise_leaf_mismatch(const LeafSpec& leaf, bool batched, py::handle got) {
  raise(errors().spec_mismatch, leaf.path + ": expected " + (batched ? "rows, each: " : "") + leaf.described +
                                    ", got " + describe_object(got) + "; every item must be like the first (" +
                                    remedy_for(leaf, batched, got) + ")");
}

// Raises ConfigError for a masked array, because it would lose its mask.
inline void refuse_masked(const LeafSpec& leaf, py::handle array) {
  if (!PyArray_CheckExact(array.ptr()) && py::isinstance(array, py::module_::import("numpy.ma").attr("MaskedArray"))) {
    raise(errors().config_error, leaf.path +
                                     ": masked arrays would lose their mask in a batch; use .filled(), or pass "
                                     "data and mask");
  }
}

// Raises SpecMismatch for an array where the first item had none, because batches would contain a list of arrays there.
inline void refuse_array(const LeafSpec& leaf, py::handle object) {
  if (leaf.seen.empty() || PyUnicode_CheckExact(object.ptr()) || object.is_none() ||
      !py::hasattr(py::type::handle_of(object), "__dlpack__") ||
      (PyArray_Check(object.ptr()) && PyDataType_REFCHK(PyArray_DESCR(as_array(object))))) {
    return;
  }
  raise(errors().spec_mismatch,
        leaf.path + ": the first item has " + (leaf.seen == "NoneType" ? "None" : "an object of type " + leaf.seen) +
            " here, so the leaf travels by reference, but now comes " + describe_object(object) +
            "; give every item an array (where there is none: zeros, and a flag), or none");
}

}  // namespace pyecho::bindings
