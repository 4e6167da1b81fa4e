// The Python object that owns a batch's memory. It is the base of the arrays of the batch.
#pragma once

#include <pybind11/pybind11.h>

#include "core/stage/batch_pool.hpp"

namespace pyecho::bindings {

// Returns a new capsule that holds the lease. When the capsule is destroyed, the lease ends.
pybind11::object make_lease_object(Lease lease);
// Returns the lease in such a capsule.
[[nodiscard]] Lease& lease_of(const pybind11::object& object) noexcept;

}  // namespace pyecho::bindings
