#define PYECHO_IMPORTS_NUMPY
#include "bindings/numpy_api.hpp"

#include "bindings/errors.hpp"

namespace pyecho::bindings {

void import_numpy() { throw_if(_import_array() < 0); }

pybind11::object array_on(std::byte* data, pybind11::handle dtype, std::span<const npy_intp> dims,
                          pybind11::handle owner) {
  pybind11::object array =
      owned(PyArray_NewFromDescr(&PyArray_Type, as_descr(dtype.inc_ref()), static_cast<int>(dims.size()),
                                 const_cast<npy_intp*>(dims.data()), nullptr, data, NPY_ARRAY_CARRAY, nullptr));
  throw_if(PyArray_SetBaseObject(as_array(array), owner.inc_ref().ptr()) != 0);
  return array;
}

}  // namespace pyecho::bindings
