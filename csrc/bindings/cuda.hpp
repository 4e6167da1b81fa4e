// pyecho._core's view of CUDA: what there is, pinned memory, and transfers.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

void register_cuda(pybind11::module_& module);

}  // namespace pyecho::bindings
