#include "bindings/structure.hpp"

#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/section.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

std::string text(py::handle object) { return py::str(object); }

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
    leaves_.emplace_back(spec, path, name);
    return node;
  }
  node.type = py::type::of(spec);
  node.read = description.attr("read");
  auto* const type = reinterpret_cast<PyTypeObject*>(node.type.ptr());
  if (PyType_IsSubtype(type, &PyDict_Type) != 0) {
    node.keys = py::tuple(description.attr("keys"));
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

// Returns the children of a matching item, in a tuple or list of their number. An item of the type of the first is read
// natively if it is a dict, tuple or list, any other by its description. Raises SpecMismatch.
py::object Structure::children_of(const Node& node, py::handle item) {
  PyObject* const object = item.ptr();
  const auto size = static_cast<Py_ssize_t>(node.children.size());
  const bool alike = node.type.is(py::type::handle_of(item));
  if (alike && PyTuple_Check(object) && PyTuple_GET_SIZE(object) == size) {
    return py::reinterpret_borrow<py::object>(item);
  }
  if (alike && PyList_Check(object) && PyList_GET_SIZE(object) == size) {
    return py::reinterpret_steal<py::object>(PyList_AsTuple(object));
  }
  if (alike && PyDict_Check(object) && PyDict_GET_SIZE(object) == size) {
    py::tuple children(size);
    Py_ssize_t found = 0;
    for (; found < size; ++found) {  // comparing keys may run code that changes the dict
      py::object child = dict_item(object, PyTuple_GET_ITEM(node.keys.ptr(), found));
      if (!child) {
        break;
      }
      PyTuple_SET_ITEM(children.ptr(), found, child.release().ptr());
    }
    throw_if(PyErr_Occurred() != nullptr);
    if (found == size) {
      return children;
    }
  }
  std::string why = "it changes while it is read";
  try {
    py::object read = call_python([&] { return node.read(item); });
    if (PyList_Check(read.ptr()) && PyList_GET_SIZE(read.ptr()) == size) {
      return read;
    }
  } catch (py::error_already_set& error) {
    if (!error.matches(errors().spec_mismatch)) {
      throw;
    }
    why = text(error.value());
  }
  raise(errors().spec_mismatch, node.path + ": " + why +
                                    "; every item must have the structure of the first (unify them in the source, or "
                                    "in a loader's collate_fn)");
}

std::vector<py::object> Structure::flatten(py::handle item) const {
  std::vector<py::object> leaves;
  leaves.reserve(leaves_.size());
  flatten(root_, item, leaves);
  return leaves;
}

void Structure::flatten(const Node& node, py::handle item, std::vector<py::object>& leaves) {
  if (!node.read) {
    leaves.push_back(py::reinterpret_borrow<py::object>(item));
    return;
  }
  const py::object children = children_of(node, item);
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    flatten(node.children[i], PySequence_Fast_GET_ITEM(children.ptr(), static_cast<Py_ssize_t>(i)), leaves);
  }
}

py::object Structure::unflatten(const Node& node, py::object*& next) {
  if (!node.read) {
    return std::move(*next++);
  }
  auto* const type = reinterpret_cast<PyTypeObject*>(node.type.ptr());
  if (type == &PyDict_Type) {
    py::dict dict;
    PyObject** key = PySequence_Fast_ITEMS(node.keys.ptr());
    for (const Node& child : node.children) {
      throw_if(PyDict_SetItem(dict.ptr(), *key++, unflatten(child, next).ptr()) != 0);
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
