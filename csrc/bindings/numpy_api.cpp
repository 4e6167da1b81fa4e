#define PYECHO_IMPORTS_NUMPY
#include "bindings/numpy_api.hpp"

namespace pyecho::bindings {

void import_numpy() {
  if (_import_array() < 0) {
    throw pybind11::error_already_set();
  }
}

}  // namespace pyecho::bindings
