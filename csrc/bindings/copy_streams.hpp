// Batches that the consumer copies to a device by itself, on streams that only Python knows.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/lease_object.hpp"
#include "cuda/deferred_release.hpp"

namespace pyecho::bindings {

// A dropped lease ends when the copies are done that may read it. `copy_streams` is asked at each drop, see DeviceMemory.
std::shared_ptr<const Retire> retire_after_copies(const std::shared_ptr<cuda::DeferredRelease>& retirement,
                                                  const pybind11::object& copy_streams);

}  // namespace pyecho::bindings
