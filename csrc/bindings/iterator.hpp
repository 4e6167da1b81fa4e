// pyecho._core.Iterator: iterates what a stage emits.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

// Either `stage` is None, and `owner` has two methods: begin(), called at the first next(), returns the stage, and ends
// what older iterators of it have left; finish(completed) is called at the end of the iteration (True) or when the
// iterator dies before it (False), and once more if that call raised. Or `owner` is None.
pybind11::object new_iterator(const pybind11::object& stage, const pybind11::object& owner);

void register_iterator(pybind11::module_& module);

}  // namespace pyecho::bindings
