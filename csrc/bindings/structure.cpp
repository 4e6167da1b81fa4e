#include "bindings/structure.hpp"

#include <utility>

#include "bindings/errors.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

std::string text(py::handle object) { return py::str(object); }

}  // namespace

std::string LeafSpec::describe() const {
  if (by_reference) {
    return "an object";
  }
  py::tuple dims(shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    dims[axis] = py::int_(shape[axis]);
  }
  return text(dtype) + " array of shape " + text(py::repr(dims));
}

Structure::Structure(const py::object& tree, const py::sequence& leaves) {
  leaves_.reserve(leaves.size());
  for (const py::handle leaf : leaves) {
    LeafSpec spec;
    spec.by_reference = leaf.is_none() || py::isinstance<py::str>(leaf);
    spec.seen = leaf.is_none() || !spec.by_reference ? "" : text(leaf);
    if (!spec.by_reference) {
      const auto [dtype, shape] = leaf.cast<std::pair<py::object, py::tuple>>();
      PyArray_Descr* descr = nullptr;
      if (PyArray_DescrConverter(dtype.ptr(), &descr) == 0) {
        throw py::error_already_set();
      }
      spec.dtype = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(descr));
      spec.size_bytes = static_cast<std::size_t>(PyDataType_ELSIZE(descr));
      for (const py::handle extent : shape) {
        spec.shape.push_back(extent.cast<npy_intp>());
        if (__builtin_mul_overflow(spec.size_bytes, static_cast<std::size_t>(spec.shape.back()), &spec.size_bytes)) {
          raise(errors().config_error, "a field of shape " + text(py::repr(shape)) + " does not fit the address space");
        }
      }
      if (spec.shape.size() >= NPY_MAXDIMS) {  // a batch has one axis more
        raise(errors().config_error, "a field may have " + std::to_string(NPY_MAXDIMS - 1) + " axes at most, got " +
                                         std::to_string(spec.shape.size()) + "; reshape it in the source");
      }
    }
    leaves_.push_back(std::move(spec));
  }
  root_ = parse(tree, "item");
}

Structure::Node Structure::parse(const py::object& tree, const std::string& path) {
  Node node;
  node.path = path;
  if (PyLong_Check(tree.ptr())) {
    node.leaf = tree.cast<std::uint32_t>();
    leaves_.at(node.leaf).path = path;
    return node;
  }
  const std::string kind = text(tree.attr("kind"));
  node.kind = kind == "dict"         ? Kind::kDict
              : kind == "list"       ? Kind::kList
              : kind == "tuple"      ? Kind::kTuple
              : kind == "namedtuple" ? Kind::kNamedTuple
                                     : Kind::kOther;
  node.type = py::type::of(tree.attr("like"));
  const PyObject* const type = node.type.ptr();
  if (const bool native = node.kind == Kind::kNamedTuple || type == reinterpret_cast<PyObject*>(&PyDict_Type) ||
                          type == reinterpret_cast<PyObject*>(&PyList_Type) ||
                          type == reinterpret_cast<PyObject*>(&PyTuple_Type);
      !native) {
    node.rebuild = tree.attr("rebuild");
  }
  node.read = tree.attr("read");
  node.expected = text(tree.attr("expected"));
  if (node.kind == Kind::kDict || node.kind == Kind::kNamedTuple) {
    node.keys = py::tuple(tree.attr("keys"));
  }
  std::size_t position = 0;
  for (const py::handle child : tree.attr("children")) {
    node.children.push_back(
        parse(py::reinterpret_borrow<py::object>(child), path + text(tree.attr("step")(position++))));
  }
  return node;
}

// Raises SpecMismatch for an `item` that does not match the node.
void Structure::mismatch(const Node& node, py::handle item) {
  py::object got = node.read(item);
  if (!py::isinstance<py::str>(got)) {
    got = py::type::handle_of(item).attr("__name__");
  }
  raise(errors().spec_mismatch, node.path + ": expected " + node.expected + ", got " + text(got) +
                                    "; every item must have the structure of the first (unify them in the source)");
}

void Structure::flatten(const Node& node, py::handle item, PyObject** out, std::size_t* count) const {
  if (node.kind == Kind::kLeaf) {
    out[(*count)++] = item.inc_ref().ptr();
    return;
  }
  const Descent descent;
  PyObject* const object = item.ptr();
  const auto require = [&](bool like) {
    if (!like) {
      mismatch(node, item);
    }
  };
  // Reading a child may run Python code that changes `item`, so each child is held while it is read, and the length is
  // checked again for the next one.
  const std::size_t size = node.children.size();
  if (node.kind == Kind::kDict) {
    require(PyDict_Check(object) && std::cmp_equal(PyDict_GET_SIZE(object), size));
    for (std::size_t i = 0; i < size; ++i) {
      PyObject* const found = PyDict_GetItemWithError(object, PyTuple_GET_ITEM(node.keys.ptr(), i));
      if (found == nullptr && PyErr_Occurred() != nullptr) {
        throw py::error_already_set();
      }
      require(found != nullptr);
      flatten(node.children[i], py::reinterpret_borrow<py::object>(found), out, count);
    }
    return;
  }
  py::object described;  // keeps the children of a described node alive
  PyObject* children = object;
  if (node.kind == Kind::kOther) {
    described = node.read(item);
    children = described.ptr();
    require(PyList_Check(children) != 0);
  } else if (node.kind == Kind::kList) {
    require(PyList_Check(object) != 0);
  } else {
    require(PyTuple_Check(object) && (node.kind == Kind::kTuple || has_names(object, node)));
  }
  for (std::size_t i = 0; i < size; ++i) {
    require(std::cmp_equal(PySequence_Fast_GET_SIZE(children), size));
    const auto child =
        py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(children, static_cast<Py_ssize_t>(i)));
    flatten(node.children[i], child, out, count);
  }
  require(std::cmp_equal(PySequence_Fast_GET_SIZE(children), size));
}

// True if the tuple names its elements the same as the node, or not at all.
bool Structure::has_names(PyObject* tuple, const Node& node) {
  if (node.type.is(py::type::handle_of(tuple)) || PyTuple_CheckExact(tuple)) {
    return true;
  }
  return py::getattr(tuple, "_fields", node.keys).equal(node.keys);
}

py::object Structure::unflatten(const Node& node, py::object* leaves) const {
  if (node.kind == Kind::kLeaf) {
    return std::move(leaves[node.leaf]);
  }
  const auto size = static_cast<Py_ssize_t>(node.children.size());
  const auto child = [&](Py_ssize_t i) { return unflatten(node.children[static_cast<std::size_t>(i)], leaves); };
  if (node.kind == Kind::kDict && !node.rebuild) {
    py::dict dict;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (PyDict_SetItem(dict.ptr(), PyTuple_GET_ITEM(node.keys.ptr(), i), child(i).ptr()) != 0) {
        throw py::error_already_set();
      }
    }
    return dict;
  }
  if (node.kind == Kind::kList || node.rebuild) {
    py::list list(size);
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyList_SET_ITEM(list.ptr(), i, child(i).release().ptr());
    }
    return node.rebuild ? node.rebuild(std::move(list)) : py::object(std::move(list));
  }
  py::tuple tuple(size);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), i, child(i).release().ptr());
  }
  return tuple_of_type(reinterpret_cast<PyTypeObject*>(node.type.ptr()), std::move(tuple));
}

py::object tuple_of_type(PyTypeObject* type, py::tuple children) {
  if (type == &PyTuple_Type) {
    return children;
  }
  PyObject* const made = PyTuple_Type.tp_new(type, py::make_tuple(std::move(children)).ptr(), nullptr);
  if (made == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(made);
}

void register_structure(py::module_& module) {
  py::class_<Structure, std::shared_ptr<Structure>>(module, "Structure", "A nest of leaves that items must have.")
      .def(py::init<const py::object&, const py::sequence&>(), py::arg("tree"), py::arg("leaves"));
}

}  // namespace pyecho::bindings
