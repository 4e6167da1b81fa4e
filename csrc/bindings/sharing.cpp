#include "bindings/sharing.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/numpy_api.hpp"
#include "bindings/structure.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// What pyecho/sharing.py has explained to this module; never let go of, since interpreters end in any order.
PyObject* describe_hook = nullptr;  // value -> pyecho.nodes.Node or None
PyObject* path_hook = nullptr;      // (item, object inside) -> how a path names it, or None

// Guards are a tuple: the item, and then for each guard the object that is watched, what it was, and who knows what it is
// now. By the latter two: (version, None) of a tensor, (dict, None), (tuple of elements, None) of a list, (tuple of
// children, description) of everything else. Containers come before what they contain.
constexpr Py_ssize_t kGuardParts = 3;

template <class Object = py::object>
Object take(PyObject* object) {
  if (object == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<Object>(object);
}

// torch.Tensor, or null while nobody has imported torch.
PyTypeObject* tensor_type() {
  static PyTypeObject* found = nullptr;
  if (found == nullptr) {
    static PyObject* const name = PyUnicode_InternFromString("torch");
    PyObject* const torch = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    if (torch != nullptr) {
      const py::object type = py::getattr(torch, "Tensor", py::none());  // none: another thread is importing it
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

// The version of a tensor, or null for an inference tensor, which has none.
py::object version_of(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("_version");
  PyObject* const version = PyObject_GetAttr(tensor, name);
  if (version == nullptr && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    PyErr_Clear();
    return {};
  }
  return take(version);
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

std::string step_to(py::handle key) { return "[" + std::string(py::repr(key)) + "]"; }

// The functions below compare `now` with what it was. They return how to get from it to the child that is another one, an
// empty string if it has others in number, and nothing if it is the same. Children are compared by identity.

std::optional<std::string> change_of_dict(PyObject* now, PyObject* was) {
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
    // Perhaps in another order. Keys may run code that changes the dict: what was found is only compared.
    if (PyDict_GetItemWithError(now, key) != child) {
      PyErr_Clear();
      return step_to(key);
    }
  }
  return std::nullopt;
}

// `description`: what knows the steps to children; none for a list.
std::optional<std::string> change_of_children(PyObject* now, PyObject* was, py::handle description) {
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
    return change_of_children(py::object(description.attr("read")(object)).ptr(), was.ptr(), description);
  }
  if (PyDict_Check(was.ptr()) && PyDict_Check(object.ptr())) {
    return change_of_dict(object.ptr(), was.ptr());
  }
  if (PyTuple_Check(was.ptr())) {
    return change_of_children(object.ptr(), was.ptr(), description);
  }
  const py::object version = version_of(object.ptr());
  return version && version.equal(was) ? std::nullopt : std::optional<std::string>("");
}

class Sharer {
 public:
  py::object share(py::handle value);
  // Null if there is nothing to guard.
  py::object guards(const py::object& item) const;

 private:
  struct Guard {
    py::object object, was, description;
  };

  py::tuple share_children(const py::tuple& children);
  py::object share_dict(py::handle dict);
  py::object share_described(py::handle value);
  void guard(std::size_t place, py::object object, py::object was, py::object description = py::none()) {
    guards_[place] = {std::move(object), std::move(was), std::move(description)};
  }
  std::size_t place() {
    guards_.emplace_back();
    return guards_.size() - 1;
  }

  std::vector<Guard> guards_;
  bool protects_ = true;  // whether arrays are replaced by views
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
      guard(place(), py::reinterpret_borrow<py::object>(value), std::move(version));
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
    const std::size_t at = place();
    const auto before = take<py::tuple>(PyList_AsTuple(object));
    py::tuple after = share_children(before);
    py::object list = after.is(before) ? py::reinterpret_borrow<py::object>(value) : py::list(after);
    guard(at, list, std::move(after));
    return list;
  }
  return PyDict_CheckExact(object) ? share_dict(value) : share_described(value);
}

// The children as they are to be shared: the same tuple if none has to be replaced.
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
  const std::size_t at = place();
  auto shared = py::reinterpret_borrow<py::object>(dict);
  auto was = take<py::dict>(PyDict_Copy(dict.ptr()));  // what Python code does to the dict meanwhile changes no copy
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
  guard(at, shared, std::move(was));
  return shared;
}

// A node, or an object with arrays inside, as pyecho.sharing.describe() sees it.
py::object Sharer::share_described(py::handle value) {
  auto shared = py::reinterpret_borrow<py::object>(value);
  const py::object description = describe_hook == nullptr ? py::none() : py::handle(describe_hook)(value);
  if (description.is_none()) {
    return shared;
  }
  const std::size_t at = place();
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
      guards_.resize(at + 1);  // then it passes as it is, watched but not protected
      protects_ = false;
      after = share_children(before);
    }
  }
  protects_ = protects;
  if (PyDict_Check(shared.ptr())) {
    guard(at, shared, take(PyDict_Copy(shared.ptr())));
  } else if (PyList_Check(shared.ptr())) {
    guard(at, shared, std::move(after));
  } else if (PyTuple_Check(shared.ptr()) == 0 && !change_of(shared, after, description)) {
    guard(at, shared, std::move(after), description);  // what changes by itself, as lazy mappings do, cannot be watched
  }
  return shared;
}

py::object Sharer::guards(const py::object& item) const {
  const auto count = std::ranges::count_if(guards_, [](const Guard& guard) { return bool(guard.object); });
  if (count == 0) {
    return {};
  }
  py::tuple all(1 + kGuardParts * count);
  Py_ssize_t at = 0;
  const auto append = [&](const py::object& part) {
    PyTuple_SET_ITEM(all.ptr(), at++, py::object(part).release().ptr());
  };
  append(item);
  for (const Guard& guard : guards_) {
    if (guard.object) {
      append(guard.object);
      append(guard.was);
      append(guard.description);
    }
  }
  return all;
}

}  // namespace

SharedItem share_item(py::handle item) {
  Sharer sharer;
  py::object shared = sharer.share(item);
  py::object guards = sharer.guards(shared);
  return {.item = std::move(shared), .guards = std::move(guards)};
}

void check_guards(py::handle guards) {
  PyObject* const all = guards.ptr();
  if (PyTuple_Check(all) == 0) {
    raise(PyExc_TypeError, "guards are what share_item() returns");
  }
  for (Py_ssize_t at = 1; at + kGuardParts <= PyTuple_GET_SIZE(all); at += kGuardParts) {
    PyObject* const object = PyTuple_GET_ITEM(all, at);
    if (const auto step = change_of(object, PyTuple_GET_ITEM(all, at + 1), PyTuple_GET_ITEM(all, at + 2))) {
      const py::object path = path_hook == nullptr
                                  ? py::none()
                                  : py::handle(path_hook)(py::handle(PyTuple_GET_ITEM(all, 0)), py::handle(object));
      raise(errors().echo_mutated, (path.is_none() ? "item" : std::string(py::str(path))) + *step +
                                       " was changed in place between two uses of the same item, so the next use would "
                                       "not be the item any more; pass copy=True to the loader, or do not modify it (a "
                                       "source must not reuse it either)");
    }
  }
}

void register_sharing(py::module_& module) {
  module.def(
      "share_item",
      [](const py::object& item) {
        SharedItem shared = share_item(item);
        return py::make_tuple(std::move(shared.item), shared.guards ? std::move(shared.guards) : py::none());
      },
      py::arg("item"), "The item as its uses share it, and what check_guards() compares (or None).");
  module.def(
      "check_guards", [](const py::object& guards) { check_guards(guards); }, py::arg("guards"),
      "Raises EchoMutated if a shared item has changed since.");
  module.def(
      "explain_nests",
      [](py::object describe, py::object path_to) {
        describe_hook = describe.release().ptr();
        path_hook = path_to.release().ptr();
      },
      py::arg("describe"), py::arg("path_to"), "Takes the functions that know the nodes which are not native.");
}

}  // namespace pyecho::bindings
