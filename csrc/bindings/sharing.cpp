#include "bindings/sharing.hpp"

#include <utility>

#include "bindings/guards.hpp"
#include "bindings/numpy_api.hpp"
#include "bindings/structure.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// pyecho.sharing.describe: value -> pyecho.nodes.Node, or None. Never released, because it is used until the very end of
// the interpreter.
PyObject* describe_hook = nullptr;

template <class Object = py::object>
Object take(PyObject* object) {
  if (object == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<Object>(object);
}

// Returns torch.Tensor, or null while torch is not imported.
PyTypeObject* tensor_type() {
  static PyTypeObject* found = nullptr;
  if (found == nullptr) {
    static PyObject* const name = PyUnicode_InternFromString("torch");
    PyObject* const torch = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    if (torch != nullptr) {
      const py::object type = py::getattr(torch, "Tensor", py::none());  // None while another thread imports torch
      if (PyType_Check(type.ptr())) {
        found = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
      }
    }
    PyErr_Clear();
  }
  return found;
}

bool is_tensor(PyObject* object) {
  PyTypeObject* const type = tensor_type();
  return type != nullptr && PyObject_TypeCheck(object, type);
}

py::object read_only_view(PyObject* array) {
  if (PyArray_CheckExact(array)) {
    auto view = take(PyArray_View(as_array(array), nullptr, nullptr));
    PyArray_CLEARFLAGS(as_array(view.ptr()), NPY_ARRAY_WRITEABLE);
    return view;
  }
  py::object view = py::handle(array).attr("view")();
  for (const py::object& part : {view, py::object(py::getattr(view, "_mask", py::none()))}) {
    if (PyArray_Check(part.ptr())) {
      PyArray_CLEARFLAGS(as_array(part.ptr()), NPY_ARRAY_WRITEABLE);
    }
  }
  return view;
}

bool is_atom(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
         type == &PyBytes_Type || object == Py_None || PyArray_IsScalar(object, Generic);
}

class Sharer {
 public:
  py::object share(py::handle value);
  [[nodiscard]] const Guards& guards() const { return guards_; }

 private:
  py::tuple share_children(const py::tuple& children);
  py::object share_dict(py::handle dict);
  py::object share_described(py::handle value);

  Guards guards_;
  bool protects_ = true;  // true if arrays are replaced by read-only views
};

py::object Sharer::share(py::handle value) {
  PyObject* const object = value.ptr();
  if (PyArray_Check(object)) {
    return protects_ ? read_only_view(object) : py::reinterpret_borrow<py::object>(value);
  }
  if (is_atom(object)) {
    return py::reinterpret_borrow<py::object>(value);
  }
  if (is_tensor(object)) {
    if (py::object version = version_of(object)) {
      guards_.set(guards_.place(), py::reinterpret_borrow<py::object>(value), std::move(version));
    }
    return py::reinterpret_borrow<py::object>(value);
  }
  const Descent descent;
  if (PyTuple_CheckExact(object) || (PyTuple_Check(object) && py::hasattr(value, "_fields"))) {
    const auto before = py::reinterpret_borrow<py::tuple>(value);
    py::tuple after = share_children(before);
    return after.is(before) ? py::object(before) : tuple_of_type(Py_TYPE(object), std::move(after));
  }
  if (PyList_CheckExact(object)) {
    const std::size_t at = guards_.place();
    const auto before = take<py::tuple>(PyList_AsTuple(object));
    py::tuple after = share_children(before);
    py::object list = after.is(before) ? py::reinterpret_borrow<py::object>(value) : py::list(after);
    guards_.set(at, list, std::move(after));
    return list;
  }
  return PyDict_CheckExact(object) ? share_dict(value) : share_described(value);
}

// Returns the children to share; the same tuple if none is replaced.
py::tuple Sharer::share_children(const py::tuple& children) {
  py::tuple shared = children;
  const auto size = static_cast<Py_ssize_t>(children.size());
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const child = PyTuple_GET_ITEM(children.ptr(), i);
    py::object made = share(child);
    if (made.ptr() == child) {
      continue;
    }
    if (shared.is(children)) {
      shared = py::tuple(size);
      for (Py_ssize_t k = 0; k < size; ++k) {
        PyTuple_SET_ITEM(shared.ptr(), k, Py_NewRef(PyTuple_GET_ITEM(children.ptr(), k)));
      }
    }
    PyTuple_SetItem(shared.ptr(), i, made.release().ptr());
  }
  return shared;
}

py::object Sharer::share_dict(py::handle dict) {
  const std::size_t at = guards_.place();
  auto shared = py::reinterpret_borrow<py::object>(dict);
  auto was = take<py::dict>(PyDict_Copy(dict.ptr()));  // a copy, because Python code may change the dict meanwhile
  PyObject* key = nullptr;
  PyObject* child = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(was.ptr(), &position, &key, &child) != 0;) {
    const py::object made = share(child);
    if (made.ptr() == child) {
      continue;
    }
    if (shared.is(dict)) {
      shared = take(PyDict_Copy(was.ptr()));
    }
    if (PyDict_SetItem(shared.ptr(), key, made.ptr()) != 0) {
      throw py::error_already_set();
    }
  }
  if (!shared.is(dict)) {
    was = take<py::dict>(PyDict_Copy(shared.ptr()));
  }
  guards_.set(at, shared, std::move(was));
  return shared;
}

// Shares a node, or an object with arrays inside, through its description by pyecho.sharing.describe().
py::object Sharer::share_described(py::handle value) {
  auto shared = py::reinterpret_borrow<py::object>(value);
  const py::object description = describe_hook == nullptr ? py::none() : py::handle(describe_hook)(value);
  if (description.is_none()) {
    return shared;
  }
  const std::size_t at = guards_.place();
  const py::object rebuild = description.attr("rebuild");
  const py::tuple before(description.attr("children"));
  const bool protects = std::exchange(protects_, protects_ && !rebuild.is_none());
  py::tuple after = share_children(before);
  if (!after.is(before)) {
    try {
      shared = rebuild(py::list(after));
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) {
        throw;
      }
      guards_.drop_behind(at);  // falls back to the original object, watched but not protected
      protects_ = false;
      after = share_children(before);
    }
  }
  protects_ = protects;
  if (PyDict_Check(shared.ptr())) {
    guards_.set(at, shared, take(PyDict_Copy(shared.ptr())));
  } else if (PyList_Check(shared.ptr())) {
    guards_.set(at, shared, std::move(after));
  } else if (PyTuple_Check(shared.ptr()) == 0 && !change_of(shared, after, description)) {
    // Skips objects that change by themselves, such as mappings that make their values on access.
    guards_.set(at, shared, std::move(after), description);
  }
  return shared;
}

}  // namespace

SharedItem share_item(py::handle item) {
  Sharer sharer;
  py::object shared = sharer.share(item);
  py::object guards = sharer.guards().packed(shared);
  return {.item = std::move(shared), .guards = std::move(guards)};
}

void register_sharing(py::module_& module) {
  module.def(
      "share_item",
      [](const py::object& item) {
        SharedItem shared = share_item(item);
        return py::make_tuple(std::move(shared.item), shared.guards ? std::move(shared.guards) : py::none());
      },
      py::arg("item"), "Return the item as its uses share it, and its guards (or None).");
  module.def(
      "check_guards", [](const py::object& guards) { check_guards(guards); }, py::arg("guards"),
      "Raises EchoMutated if a shared item has changed since.");
  module.def(
      "explain_nests",
      [](py::object describe, py::object path_to) {
        describe_hook = describe.release().ptr();
        name_paths_with(std::move(path_to));
      },
      py::arg("describe"), py::arg("path_to"), "Set the functions that describe nodes of other types.");
}

}  // namespace pyecho::bindings
