#include "bindings/ownership.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

#ifdef Py_GIL_DISABLED

void give_up_nest(PyObject* object, int levels) {
  if (object == nullptr) {
    return;
  }
  give_up_ownership(object);
  if (levels == 0) {
    return;
  }
  // References of its own to the children of a list or dict, because another thread may change it.
  py::object children;
  if (PyTuple_Check(object)) {
    children = py::reinterpret_borrow<py::object>(object);
  } else if (PyList_CheckExact(object)) {
    children = py::reinterpret_steal<py::object>(PyList_AsTuple(object));
  } else if (PyDict_CheckExact(object)) {
    children = py::reinterpret_steal<py::object>(PyDict_Values(object));
  }
  if (!children) {  // a leaf, or no memory
    PyErr_Clear();
    return;
  }
  PyObject** const items = PySequence_Fast_ITEMS(children.ptr());
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(children.ptr()); ++i) {
    give_up_nest(items[i], levels - 1);
  }
}

#endif

}  // namespace pyecho::bindings
