// Batches that the consumer copies to a device by itself, on streams that only Python knows.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/lease_object.hpp"
#include "cuda/deferred_release.hpp"

namespace pyecho::bindings {

// Keeps a dropped lease until the copies are done that may read it. `copy_streams` is asked at each drop, see
// DeviceMemory.
std::shared_ptr<LeaseKeeper> keep_while_copied(const cuda::Device& device, const pybind11::object& copy_streams);

}  // namespace pyecho::bindings
