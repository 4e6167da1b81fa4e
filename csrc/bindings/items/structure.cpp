#include "bindings/items/structure.hpp"

#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/section.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

std::string text(py::handle object) { return py::str(object); }

// True for the same key, and for equal strings. Runs no Python code.
bool same_key(PyObject* key, PyObject* other) noexcept {
  return key == other ||
         (PyUnicode_CheckExact(key) && PyUnicode_CheckExact(other) &&
          PyUnicode_GET_LENGTH(key) == PyUnicode_GET_LENGTH(other) && PyUnicode_Compare(key, other) == 0);
}

}  // namespace

LeafSpec::LeafSpec(const py::object& field, std::string where, std::string called)
    : path(std::move(where)), name(std::move(called)), by_reference(field.attr("by_reference").cast<bool>()) {
  if (by_reference) {
    if (const py::object type = field.attr("seen"); !type.is_none()) {
      seen = text(type);
    }
    return;
  }
  dtype = field.attr("dtype");
  const py::tuple extents = field.attr("shape");
  described = text(dtype) + " array of shape " + text(py::repr(extents));
  size_bytes = static_cast<std::size_t>(PyDataType_ELSIZE(as_descr(dtype)));
  for (const py::handle extent : extents) {
    if (extent.is_none()) {
      shape.push_back(-1);
      variable = {.axes = static_cast<std::uint32_t>(extents.size()),
                  .element_bytes = static_cast<std::size_t>(PyDataType_ELSIZE(as_descr(dtype))),
                  .max_bytes = field.attr("max_bytes").cast<std::size_t>()};
      continue;
    }
    shape.push_back(extent.cast<npy_intp>());
    size_bytes = times(size_bytes, static_cast<std::size_t>(shape.back()));
    if (size_bytes == kTooLarge) {
      raise(errors().config_error, "a field of shape " + text(py::repr(extents)) + " does not fit the address space");
    }
  }
  if (variable.axes > 0) {
    size_bytes = 0;
  }
  if (shape.size() >= max_axes()) {  // a batch has one axis more
    raise(errors().config_error, "a field may have " + std::to_string(max_axes() - 1) + " axes at most, got " +
                                     std::to_string(shape.size()) + "; reshape it in the source");
  }
}

Structure::Node Structure::parse(const py::object& spec, const py::object& node_of, const std::string& path,
                                 const std::string& name) {
  Node node;
  node.path = path;
  const py::object description = node_of(spec);
  if (description.is_none()) {
    if (leaves_.emplace_back(spec, path, name).by_reference) {
      reference_leaves_.push_back(leaves_.size() - 1);
    }
    return node;
  }
  node.type = py::type::of(spec);
  node.read = description.attr("read");
  auto* const type = reinterpret_cast<PyTypeObject*>(node.type.ptr());
  if (PyType_IsSubtype(type, &PyDict_Type) != 0) {
    node.keys = py::tuple(description.attr("keys"));
    constexpr std::size_t kFewKeys = 5;  // of a dict that CPython makes without growing
    if (py::len(node.keys) > kFewKeys) {
      node.blank = py::dict();
      for (const py::handle key : node.keys) {
        node.blank[key] = py::none();
      }
    }
  }
  if (type != &PyDict_Type && type != &PyList_Type && type != &PyTuple_Type &&
      (PyType_IsSubtype(type, &PyTuple_Type) == 0 || !py::hasattr(spec, "_fields"))) {
    node.rebuild = description.attr("rebuild");
  }
  std::size_t position = 0;
  const py::list keys(description.attr("keys"));
  for (const py::handle child : description.attr("children")) {
    const std::string step = text(description.attr("step")(position));
    std::string of_child = name.empty() ? "" : std::string(name).append(".");
    of_child += text(keys[position++]);
    node.children.push_back(parse(py::reinterpret_borrow<py::object>(child), node_of, path + step, of_child));
  }
  return node;
}

void Structure::flatten(const Node& node, py::object item, py::object*& next) {
  if (!node.read) {
    *next++ = std::move(item);
    return;
  }
  py::object* const begin = next;
  if (!flatten_natively(node, item.ptr(), next)) {
    next = begin;
    flatten_described(node, item, next);
  }
}

// Flattens an item of the type of the first, if that is a dict, tuple or list. Returns false if it has other children,
// or they change meanwhile.
bool Structure::flatten_natively(const Node& node, PyObject* object, py::object*& next) {
  const auto size = static_cast<Py_ssize_t>(node.children.size());
  if (!node.type.is(py::type::handle_of(object))) {
    return false;
  }
  const auto child = [&](Py_ssize_t i, PyObject* found) {
    flatten(node.children[static_cast<std::size_t>(i)], py::reinterpret_borrow<py::object>(found), next);
  };
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == size) {
    for (Py_ssize_t i = 0; i < size; ++i) {
      child(i, PyTuple_GET_ITEM(object, i));
    }
    return true;
  }
  const Section section{py::handle(object)};
  if (PyList_Check(object)) {
    Py_ssize_t i = 0;
    for (; i < size && PyList_GET_SIZE(object) == size; ++i) {
      child(i, PyList_GET_ITEM(object, i));
    }
    return i == size && PyList_GET_SIZE(object) == size;
  }
  if (!PyDict_Check(object) || PyDict_GET_SIZE(object) != size) {
    return false;
  }
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const wanted = PyTuple_GET_ITEM(node.keys.ptr(), i);
    PyObject* key = nullptr;
    PyObject* found = nullptr;
    if (PyDict_Next(object, &at, &key, &found) != 0 && same_key(key, wanted)) {  // in the order of the first item
      child(i, found);
      continue;
    }
    const py::object value = dict_item(object, wanted);
    if (!value) {
      throw_if(PyErr_Occurred() != nullptr);
      return false;
    }
    child(i, value.ptr());
  }
  return true;
}

// Flattens an item by the description of the first. Raises SpecMismatch.
void Structure::flatten_described(const Node& node, py::handle item, py::object*& next) {
  std::string why = "it changes while it is read";
  py::object children;
  try {
    children = call_python([&] { return node.read(item); });
  } catch (py::error_already_set& error) {
    if (!error.matches(errors().spec_mismatch)) {
      throw;
    }
    why = text(error.value());
  }
  if (!children || PyList_Check(children.ptr()) == 0 ||
      std::cmp_not_equal(PyList_GET_SIZE(children.ptr()), node.children.size())) {
    raise(errors().spec_mismatch, node.path + ": " + why +
                                      "; every item must have the structure of the first (unify them in the source, "
                                      "or in a loader's collate_fn)");
  }
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    flatten(node.children[i], py::list(children)[i], next);
  }
}

py::object Structure::unflatten(const Node& node, py::object*& next) {
  if (!node.read) {
    return std::move(*next++);
  }
  auto* const type = reinterpret_cast<PyTypeObject*>(node.type.ptr());
  if (type == &PyDict_Type) {
    auto dict = owned<py::dict>(node.blank ? PyDict_Copy(node.blank.ptr()) : PyDict_New());
    PyObject** key = PySequence_Fast_ITEMS(node.keys.ptr());
    for (const Node& child : node.children) {
      const py::object made = child.read ? unflatten(child, next) : std::move(*next++);
      throw_if(PyDict_SetItem(dict.ptr(), *key++, made.ptr()) != 0);
    }
    return dict;
  }
  py::tuple children(node.children.size());
  Py_ssize_t position = 0;
  for (const Node& child : node.children) {
    PyTuple_SET_ITEM(children.ptr(), position++, unflatten(child, next).release().ptr());
  }
  if (node.rebuild) {
    return call_python([&, list = py::list(children)] { return node.rebuild(list); });
  }
  return type == &PyList_Type ? py::object(py::list(children)) : tuple_of_type(type, std::move(children));
}

py::object tuple_of_type(PyTypeObject* type, py::tuple children) {
  if (type == &PyTuple_Type) {
    return children;
  }
  return owned(PyTuple_Type.tp_new(type, py::make_tuple(std::move(children)).ptr(), nullptr));
}

}  // namespace pyecho::bindings
