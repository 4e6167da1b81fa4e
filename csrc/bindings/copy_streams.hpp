// Keeps batches that the consumer copies to a device by itself, on streams that only Python knows.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/lease_object.hpp"
#include "cuda/deferred_release.hpp"

namespace pyecho::bindings {

// Returns a keeper that holds each dropped lease until the copies that may read it are done. Calls `copy_streams` (see
// DeviceMemory) at each drop.
std::shared_ptr<LeaseKeeper> keep_while_copied(const cuda::Device& device, const pybind11::object& copy_streams);

}  // namespace pyecho::bindings
