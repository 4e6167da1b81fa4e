// pyecho._core.Iterator: iterates over the emissions of a stage.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

// Either `stage` or `owner` is None. An owner has two methods:
// - begin(), called at the first next(), ends older iterations and returns the stage and its generation.
// - finish(completed) is called at the end of the iteration (True), or if the iterator is destroyed earlier (False). It is
//   called once more if it raises.
pybind11::object new_iterator(const pybind11::object& stage, const pybind11::object& owner);

void register_iterator(pybind11::module_& module);

}  // namespace pyecho::bindings
