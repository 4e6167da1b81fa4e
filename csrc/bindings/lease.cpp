#include "bindings/lease.hpp"

#include <memory>
#include <tuple>
#include <utility>

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
  PyObject* const capsule = PyCapsule_New(kept.get(), nullptr, destroy_lease);
  if (capsule == nullptr) {
    throw py::error_already_set();
  }
  std::ignore = kept.release();  // the capsule's
  give_up_ownership(capsule);
  return py::reinterpret_steal<py::object>(capsule);
}

Lease& lease_of(const py::object& object) noexcept {
  return *static_cast<Lease*>(PyCapsule_GetPointer(object.ptr(), nullptr));
}

}  // namespace pyecho::bindings
