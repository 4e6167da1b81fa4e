// The Python object that owns a batch's memory: the base of the arrays that show it.
#pragma once

#include <pybind11/pybind11.h>

#include "core/batch_pool.hpp"

namespace pyecho::bindings {

// A new object that holds the lease; when its last reference goes, the memory may be filled again.
pybind11::object make_lease_object(Lease lease);

void register_lease(pybind11::module_& module);

}  // namespace pyecho::bindings
