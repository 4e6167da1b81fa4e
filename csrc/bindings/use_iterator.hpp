// pyecho._core.UseIterator: iterates the uses of the items in an EchoQueue.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

// See native_iterator.hpp for `owner`.
pybind11::object make_use_iterator(const pybind11::object& queue, const pybind11::object& owner);

void register_use_iterator(pybind11::module_& module);

}  // namespace pyecho::bindings
