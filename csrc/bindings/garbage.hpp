// Support for Python's cycle collector in bound classes.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

// Returns the C++ object of `self`, or null while it is under construction. Unlike pybind11::cast, does not use pybind11's
// registry, which no longer exists during the last collections of a finalizing interpreter.
template <class Bound>
Bound* bound_object(PyObject* self) {
  auto value_and_holder = reinterpret_cast<pybind11::detail::instance*>(self)->get_value_and_holder();
  return value_and_holder.holder_constructed() ? value_and_holder.template value_ptr<Bound>() : nullptr;
}

// `Bound` has traverse(visit, arg), which visits its references, and clear(), which drops them.
template <class Bound>
pybind11::custom_type_setup collect_cycles() {
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject* const type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) -> int {
      Py_VISIT(Py_TYPE(self));
      const auto* const bound = bound_object<Bound>(self);
      return bound == nullptr ? 0 : bound->traverse(visit, arg);
    };
    type->tp_clear = [](PyObject* self) -> int {
      if (auto* const bound = bound_object<Bound>(self); bound != nullptr) {
        bound->clear();
      }
      return 0;
    };
  });
}

}  // namespace pyecho::bindings
