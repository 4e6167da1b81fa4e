// The end of pyecho's Python threads when Python exits.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

void register_exit(pybind11::module_& module);

}  // namespace pyecho::bindings
