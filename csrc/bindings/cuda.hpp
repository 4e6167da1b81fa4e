// The CUDA part of pyecho._core: driver and devices, pinned memory, transfers.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

void register_cuda(pybind11::module_& module);

}  // namespace pyecho::bindings
