#include <optional>
#include <string>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/items/structure.hpp"
#include "bindings/numpy_api.hpp"
#include "bindings/registration.hpp"
#include "bindings/section.hpp"
#include "bindings/stages/queue.hpp"
#include "core/sync/atomic.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// pyecho.items.sharing.describe: value -> pyecho.items.nodes.Node, or None; and path_to: (item, object inside) -> path
// of the object, or None. Never released, because they are used until the very end of the interpreter.
PyObject* describe_hook = nullptr;
PyObject* path_hook = nullptr;

// Interned strings, made while the module is imported: a thread that waits for the initialiser of a static cannot let
// the garbage collector of a free-threaded Python proceed.
PyObject* torch_name = nullptr;
PyObject* version_name = nullptr;

// Returns torch.Tensor, or null while torch is not imported.
PyTypeObject* tensor_type() {
  static Atomic<PyTypeObject*> found;
  if (PyTypeObject* const known = found.load_acquire(); known != nullptr) {
    return known;
  }
  const py::object torch = dict_item(PyImport_GetModuleDict(), torch_name);
  if (torch) {
    const py::object type = py::getattr(torch, "Tensor", py::none());  // None while another thread imports torch
    if (PyType_Check(type.ptr())) {
      found.store_release(reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr()));
    }
  }
  PyErr_Clear();
  return found.load_acquire();
}

bool is_tensor(PyObject* object) {
  PyTypeObject* const type = tensor_type();
  return type != nullptr && PyObject_TypeCheck(object, type);
}

py::object read_only_view(PyObject* array) {
  if (PyArray_CheckExact(array)) {
    auto view = owned(PyArray_View(as_array(array), nullptr, nullptr));
    PyArray_CLEARFLAGS(as_array(view), NPY_ARRAY_WRITEABLE);
    return view;
  }
  py::object view = py::handle(array).attr("view")();
  for (const py::object& part : {view, py::object(py::getattr(view, "_mask", py::none()))}) {
    if (PyArray_Check(part.ptr())) {
      PyArray_CLEARFLAGS(as_array(part), NPY_ARRAY_WRITEABLE);
    }
  }
  return view;
}

bool is_atom(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
         type == &PyBytes_Type || object == Py_None || PyArray_IsScalar(object, Generic);
}

// Returns the version of a tensor, or null for an inference tensor, because it has none.
py::object version_of(PyObject* tensor) {
  PyObject* const version = PyObject_GetAttr(tensor, version_name);
  if (version == nullptr && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    PyErr_Clear();
    return {};
  }
  return owned(version);
}

// ---------------------------------------------------------------- watching

// Each guard is a tuple of a watched object and its former state (object, was, description), or None:
//   a tensor | its version | None            a list | tuple of its elements | None
//   a dict   | a copy      | None            else   | tuple of its children | its description (pyecho.items.nodes.Node)
// Containers precede their contents, so the object of the first guard that finds a change is still reachable from the
// item.

// The functions below return the step from `object` to the changed child, or "" if the object itself or its number of
// children has changed, or nothing if there is no change. Children are compared by identity. Python code runs for
// described objects, and for dicts whose entries are in another order.

std::string step_to(py::handle key) { return "[" + std::string(py::repr(key)) + "]"; }

std::optional<std::string> change_of_dict(PyObject* now, PyObject* was) {
  const Section section(now, was);
  if (PyDict_GET_SIZE(now) != PyDict_GET_SIZE(was)) {
    return "";
  }
  PyObject *key = nullptr, *child = nullptr, *key_now = nullptr, *child_now = nullptr;
  Py_ssize_t at = 0;
  Py_ssize_t at_now = 0;
  while (PyDict_Next(was, &at, &key, &child) != 0) {
    if (PyDict_Next(now, &at_now, &key_now, &child_now) != 0 && key == key_now && child == child_now) {
      continue;
    }
    // The order may differ. Comparing keys may run code that changes the dict, so the result is only compared.
    if (PyDict_GetItemWithError(now, key) != child) {
      PyErr_Clear();
      return step_to(key);
    }
  }
  return std::nullopt;
}

// For a list, or the children of a described node. `description`: None for a list.
std::optional<std::string> change_of_children(PyObject* now, PyObject* was, py::handle description) {
  const Section section{py::handle(now)};
  const Py_ssize_t size = PyTuple_GET_SIZE(was);
  if (PyList_Check(now) == 0 || PyList_GET_SIZE(now) != size) {
    return "";
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (PyList_GET_ITEM(now, i) != PyTuple_GET_ITEM(was, i)) {
      return description.is_none() ? step_to(py::int_(i)) : std::string(py::str(description.attr("step")(i)));
    }
  }
  return std::nullopt;
}

std::optional<std::string> change_of(py::handle object, py::handle was, py::handle description) {
  if (!description.is_none()) {
    const py::object read = description.attr("read");
    try {
      const py::object now = call_python([&] { return read(object); });
      return change_of_children(now.ptr(), was.ptr(), description);
    } catch (py::error_already_set& error) {
      if (!error.matches(errors().spec_mismatch)) {
        throw;
      }
      return "";
    }
  }
  if (PyDict_Check(was.ptr())) {
    return change_of_dict(object.ptr(), was.ptr());
  }
  if (PyTuple_Check(was.ptr())) {
    return change_of_children(object.ptr(), was.ptr(), description);
  }
  const py::object version = version_of(object.ptr());
  return version && version.equal(was) ? std::nullopt : std::optional<std::string>("");
}

// ---------------------------------------------------------------- sharing

// Counts one level of a walk down a nest, until it is destroyed. Raises ConfigError for nests that are too deep for the
// stack or contain themselves.
class Descent {
 public:
  Descent() {
    if (Py_EnterRecursiveCall(" in a nest") != 0) {
      PyErr_Clear();
      raise(errors().config_error, "an item contains itself, or is nested too deep; yield items without such a part");
    }
  }
  ~Descent() { Py_LeaveRecursiveCall(); }
  Descent(const Descent&) = delete;
  Descent& operator=(const Descent&) = delete;
};

class Sharer {
 public:
  py::object share(py::handle value);
  // Returns a list, or null if there is nothing to watch.
  [[nodiscard]] const py::object& guards() const { return guards_; }

 private:
  py::tuple share_children(const py::tuple& children);
  py::object share_dict(py::handle dict);
  py::object share_described(py::handle value);
  // Reserves the place of a guard, before the contents of its object are guarded.
  Py_ssize_t place() {
    if (!guards_) {
      guards_ = py::list();
    }
    throw_if(PyList_Append(guards_.ptr(), Py_None) != 0);
    return PyList_GET_SIZE(guards_.ptr()) - 1;
  }
  void guard(Py_ssize_t place, py::handle object, py::handle was, py::handle description = Py_None) {
    py::object made = owned(PyTuple_Pack(3, object.ptr(), was.ptr(), description.ptr()));
    PyList_SetItem(guards_.ptr(), place, made.release().ptr());
  }

  py::object guards_;
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
    if (const py::object version = version_of(object)) {
      guard(place(), value, version);
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
    const Py_ssize_t at = place();
    const auto before = owned<py::tuple>(PyList_AsTuple(object));
    const py::tuple after = share_children(before);
    py::object list = after.is(before) ? py::reinterpret_borrow<py::object>(value) : py::list(after);
    guard(at, list, after);
    return list;
  }
  return PyDict_CheckExact(object) ? share_dict(value) : share_described(value);
}

// Returns the children to share; the same tuple if none is replaced.
py::tuple Sharer::share_children(const py::tuple& children) {
  py::tuple shared(children.size());
  bool same = true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(children.ptr()); ++i) {
    const py::handle child = PyTuple_GET_ITEM(children.ptr(), i);
    py::object made = share(child);
    same = same && made.is(child);
    PyTuple_SET_ITEM(shared.ptr(), i, made.release().ptr());
  }
  return same ? children : shared;
}

py::object Sharer::share_dict(py::handle dict) {
  const Py_ssize_t at = place();
  const auto was = owned<py::dict>(PyDict_Copy(dict.ptr()));  // at once: Python code may change the dict meanwhile
  bool same = true;
  PyObject* key = nullptr;
  PyObject* child = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(was.ptr(), &position, &key, &child) != 0;) {
    const py::object made = share(child);
    if (made.ptr() != child) {
      same = false;
      throw_if(PyDict_SetItem(was.ptr(), key, made.ptr()) != 0);
    }
  }
  py::object shared = same ? py::reinterpret_borrow<py::object>(dict) : owned(PyDict_Copy(was.ptr()));
  guard(at, shared, was);
  return shared;
}

// Shares a node through its description by pyecho.items.sharing.describe(). Other objects pass as they are.
py::object Sharer::share_described(py::handle value) {
  auto shared = py::reinterpret_borrow<py::object>(value);
  const py::object description =
      describe_hook == nullptr ? py::object(py::none()) : call_python([&] { return py::handle(describe_hook)(value); });
  if (description.is_none()) {
    return shared;
  }
  const Py_ssize_t at = place();
  const py::tuple before(description.attr("children"));
  const bool protects = protects_;
  py::tuple after = share_children(before);
  if (!after.is(before)) {
    try {
      const py::object rebuild = description.attr("rebuild");
      const py::list children(after);
      shared = call_python([&] { return rebuild(children); });
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) {
        throw;
      }
      // Falls back to the original object, watched but not protected.
      PyList_SetSlice(guards_.ptr(), at + 1, PY_SSIZE_T_MAX, nullptr);
      protects_ = false;
      after = share_children(before);
    }
  }
  protects_ = protects;
  if (PyDict_Check(shared.ptr())) {
    guard(at, shared, owned(PyDict_Copy(shared.ptr())));
  } else if (PyList_Check(shared.ptr())) {
    guard(at, shared, after);
  } else if (PyTuple_Check(shared.ptr()) == 0 && !change_of(shared, after, description)) {
    // Skips objects that change by themselves, such as mappings that make their values on access.
    guard(at, shared, after, description);
  }
  return shared;
}

}  // namespace

SharedItem share_item(py::handle item) {
  Sharer sharer;
  py::object shared = sharer.share(item);
  return {.item = std::move(shared), .guards = sharer.guards()};
}

void check_guards(py::handle item, py::handle guards) {
  for (const py::handle guard : py::reinterpret_borrow<py::list>(guards)) {
    if (guard.is_none()) {
      continue;
    }
    const py::handle object = PyTuple_GET_ITEM(guard.ptr(), 0);
    const py::handle description = PyTuple_GET_ITEM(guard.ptr(), 2);
    if (const auto step = change_of(object, PyTuple_GET_ITEM(guard.ptr(), 1), description)) {
      const py::object path = py::handle(path_hook)(item, object);
      raise(errors().echo_mutated, (path.is_none() ? "item" : std::string(py::str(path))) + *step +
                                       " was changed in place between two uses of the same item, so the next use would "
                                       "not be the item any more; pass copy=True to the loader, or do not modify it (a "
                                       "source must not reuse it either" +
                                       (description.is_none() ? ")"
                                                              : "; item.to(device) of transformers' BatchEncoding "
                                                                "modifies the item)"));
    }
  }
}

void register_sharing(py::module_& module) {
  torch_name = owned(PyUnicode_InternFromString("torch")).release().ptr();
  version_name = owned(PyUnicode_InternFromString("_version")).release().ptr();
  module.def(
      "explain_nests",
      [](py::object describe, py::object path_to) {
        describe_hook = describe.release().ptr();
        path_hook = path_to.release().ptr();
      },
      py::arg("describe"), py::arg("path_to"), "Set the functions that describe nodes of other types.");
  module.def(
      "share_item",
      [](py::handle item) {
        SharedItem shared = share_item(item);
        return std::pair(std::move(shared.item), shared.guards ? std::move(shared.guards) : py::list());
      },
      py::arg("item"), "Return an item as its uses share it, and guards that tell whether one has changed it.");
  module.def("check_guards", &check_guards, py::arg("item"), py::arg("guards"), "Raise EchoMutated if one has.");
}

}  // namespace pyecho::bindings
