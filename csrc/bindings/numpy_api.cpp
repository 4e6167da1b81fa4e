#define PYECHO_IMPORTS_NUMPY
#include "bindings/numpy_api.hpp"

namespace pyecho::bindings {

void import_numpy() {
  if (_import_array() < 0) {
    throw pybind11::error_already_set();
  }
}

pybind11::object array_on(std::byte* data, pybind11::handle dtype, std::span<const npy_intp> dims,
                          pybind11::handle owner) {
  PyObject* const array =
      PyArray_NewFromDescr(&PyArray_Type, as_descr(dtype.inc_ref()), static_cast<int>(dims.size()),
                           const_cast<npy_intp*>(dims.data()), nullptr, data, NPY_ARRAY_CARRAY, nullptr);
  if (array == nullptr) {
    throw pybind11::error_already_set();
  }
  auto object = pybind11::reinterpret_steal<pybind11::object>(array);
  if (PyArray_SetBaseObject(as_array(array), owner.inc_ref().ptr()) != 0) {
    throw pybind11::error_already_set();
  }
  return object;
}

}  // namespace pyecho::bindings
