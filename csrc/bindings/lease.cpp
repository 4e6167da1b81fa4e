#include "bindings/lease.hpp"

#include <memory>
#include <tuple>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/ownership.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

void destroy_lease(PyObject* capsule) {
  const std::unique_ptr<Lease> lease(static_cast<Lease*>(PyCapsule_GetPointer(capsule, nullptr)));
}

}  // namespace

py::object make_lease_object(Lease lease) {
  auto kept = std::make_unique<Lease>(std::move(lease));
  py::object capsule = owned(PyCapsule_New(kept.get(), nullptr, destroy_lease));
  std::ignore = kept.release();  // the capsule's
  give_up_ownership(capsule.ptr());
  return capsule;
}

Lease& lease_of(const py::object& object) noexcept {
  return *static_cast<Lease*>(PyCapsule_GetPointer(object.ptr(), nullptr));
}

}  // namespace pyecho::bindings
