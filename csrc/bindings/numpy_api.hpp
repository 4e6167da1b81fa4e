// NumPy's C API, imported once by the module (numpy_api.cpp) and shared by all files.
#pragma once

#include <pybind11/pybind11.h>

#ifndef PYECHO_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#define PY_ARRAY_UNIQUE_SYMBOL pyecho_numpy_api
#include <numpy/arrayobject.h>

#include <cstddef>
#include <span>

namespace pyecho::bindings {

// Loads the API; throws error_already_set if NumPy is missing or too old.
void import_numpy();

// Returns how many axes an array may have in the NumPy that is installed.
inline std::size_t max_axes() noexcept {
  constexpr std::size_t kBeforeNumPy2 = 32;
  return PyArray_RUNTIME_VERSION >= NPY_2_0_API_VERSION ? NPY_MAXDIMS : kBeforeNumPy2;
}

// Casts `object`, which must be an ndarray (or a dtype).
inline PyArrayObject* as_array(pybind11::handle object) noexcept {
  return reinterpret_cast<PyArrayObject*>(object.ptr());
}
inline PyArray_Descr* as_descr(pybind11::handle object) noexcept {
  return reinterpret_cast<PyArray_Descr*>(object.ptr());
}

// Returns a writable array on memory that `owner` keeps alive. Throws error_already_set.
pybind11::object array_on(std::byte* data, pybind11::handle dtype, std::span<const npy_intp> dims,
                          pybind11::handle owner);

}  // namespace pyecho::bindings
