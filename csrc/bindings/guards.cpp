#include "bindings/guards.hpp"

#include <algorithm>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/sharing.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

constexpr Py_ssize_t kParts = 3;  // elements per guard in the packed tuple, whose first element is the item

PyObject* path_hook = nullptr;  // never released, because it is used until the very end of the interpreter

std::string step_to(py::handle key) { return "[" + std::string(py::repr(key)) + "]"; }

// change_of() for a dict.
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
    // The order may differ. Comparing keys may run code that changes the dict, so the result is only compared.
    if (PyDict_GetItemWithError(now, key) != child) {
      PyErr_Clear();
      return step_to(key);
    }
  }
  return std::nullopt;
}

// change_of() for a list, or for the children of a described node. `description`: None for a list.
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

}  // namespace

std::size_t Guards::place() {
  guards_.emplace_back();
  return guards_.size() - 1;
}

void Guards::set(std::size_t place, py::object object, py::object was, py::object description) {
  guards_[place] = {.object = std::move(object), .was = std::move(was), .description = std::move(description)};
}

py::object Guards::packed(const py::object& item) const {
  const auto count = std::ranges::count_if(guards_, [](const Guard& guard) { return static_cast<bool>(guard.object); });
  if (count == 0) {
    return {};
  }
  py::tuple all(1 + kParts * count);
  Py_ssize_t at = 0;
  const auto append = [&](py::object part) { PyTuple_SET_ITEM(all.ptr(), at++, part.release().ptr()); };
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

void name_paths_with(py::object path_to) { path_hook = path_to.release().ptr(); }

py::object version_of(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("_version");
  PyObject* const version = PyObject_GetAttr(tensor, name);
  if (version == nullptr && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    PyErr_Clear();
    return {};
  }
  if (version == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(version);
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

void check_guards(py::handle guards) {
  PyObject* const all = guards.ptr();
  if (PyTuple_Check(all) == 0) {
    raise(PyExc_TypeError, "guards are what share_item() returns");
  }
  for (Py_ssize_t at = 1; at + kParts <= PyTuple_GET_SIZE(all); at += kParts) {
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

}  // namespace pyecho::bindings
