#include "bindings/lease_object.hpp"

#include <new>
#include <utility>

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// A raw type, because one is made for every batch. The lease is stored in the object, without an allocation of its own.
struct LeaseObject {
  PyObject_HEAD Lease lease;
};

PyTypeObject* lease_type = nullptr;

void dealloc_lease(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  auto* const object = reinterpret_cast<LeaseObject*>(self);
  object->lease.~Lease();
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot lease_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_lease)},
    {Py_tp_doc, const_cast<char*>("Keeps the memory of one batch; arrays of the batch refer to it.")},
    {0, nullptr},
};

PyType_Spec lease_spec = {
    .name = "pyecho._core.Lease",
    .basicsize = sizeof(LeaseObject),
    .itemsize = 0,
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = lease_slots,
};

}  // namespace

py::object make_lease_object(Lease lease) {
  PyObject* const self = lease_type->tp_alloc(lease_type, 0);
  if (self == nullptr) {
    throw py::error_already_set();
  }
  new (&reinterpret_cast<LeaseObject*>(self)->lease) Lease(std::move(lease));
  return py::reinterpret_steal<py::object>(self);
}

Lease& lease_of(const py::object& object) noexcept { return reinterpret_cast<LeaseObject*>(object.ptr())->lease; }

void register_lease(py::module_& module) {
  PyObject* const type = PyType_FromSpec(&lease_spec);
  if (type == nullptr) {
    throw py::error_already_set();
  }
  lease_type = reinterpret_cast<PyTypeObject*>(type);
  module.attr("Lease") = py::handle(type);
}

}  // namespace pyecho::bindings
