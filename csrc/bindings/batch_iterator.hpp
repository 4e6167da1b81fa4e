// pyecho._core.BatchIterator: iterates the batches of an EchoBuffer.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

// See native_iterator.hpp for `owner`.
pybind11::object make_batch_iterator(const pybind11::object& buffer, const pybind11::object& owner);

void register_batch_iterator(pybind11::module_& module);

}  // namespace pyecho::bindings
