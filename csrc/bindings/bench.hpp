// The native measurements of `pyecho bench`: _core.GatherRace, _core.hand_over_ns.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

void register_bench(pybind11::module_& module);

}  // namespace pyecho::bindings
