// The Python object that owns a batch's memory: the base of the arrays that show it.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>

#include "core/memory/batch_pool.hpp"

namespace pyecho::bindings {

// What becomes of a lease whose last view was dropped, called with the GIL. Null: it ends there and then.
using Retire = std::function<void(Lease)>;

// A new object that holds the lease; when its last reference goes, the memory may be filled again.
pybind11::object make_lease_object(Lease lease, const std::shared_ptr<const Retire>& retire);

void register_lease(pybind11::module_& module);

}  // namespace pyecho::bindings
