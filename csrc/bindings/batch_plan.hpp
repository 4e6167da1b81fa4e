// pyecho._core.BatchPlan: the planner for batches that are assembled elsewhere.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

void register_batch_plan(pybind11::module_& module);

}  // namespace pyecho::bindings
