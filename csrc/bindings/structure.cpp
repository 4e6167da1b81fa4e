#include "bindings/structure.hpp"

#include <utility>

#include "bindings/errors.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

std::string text(py::handle object) { return py::str(object); }
std::string represent(py::handle object) { return py::repr(object); }

std::string keys_of(py::handle dict) { return represent(py::reinterpret_steal<py::object>(PyDict_Keys(dict.ptr()))); }

std::string type_name(py::handle object) { return text(py::type::handle_of(object).attr("__name__")); }

[[noreturn]] void raise_nest_mismatch(const std::string& path, const std::string& expected, const std::string& got) {
  raise(errors().spec_mismatch, path + ": expected " + expected + ", got " + got +
                                    "; every item must have the structure of the first (unify them in the source)");
}

}  // namespace

std::string LeafSpec::describe() const {
  if (by_reference) {
    return "an object";
  }
  py::tuple dims(shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    dims[axis] = py::int_(shape[axis]);
  }
  return text(dtype) + " array of shape " + represent(dims);
}

Structure::Structure(const py::object& nest, const py::sequence& leaves) {
  leaves_.reserve(leaves.size());
  for (const py::handle leaf : leaves) {
    LeafSpec spec{.path = {}, .by_reference = leaf.is_none(), .dtype = py::none(), .shape = {}, .size_bytes = 0};
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
          raise(errors().config_error, "a field of shape " + represent(shape) + " does not fit the address space");
        }
      }
      if (spec.shape.size() >= NPY_MAXDIMS) {  // a batch has one axis more
        raise(errors().config_error, "a field may have " + std::to_string(NPY_MAXDIMS - 1) + " axes at most, got " +
                                         std::to_string(spec.shape.size()) + "; reshape it in the source");
      }
    }
    leaves_.push_back(std::move(spec));
  }
  root_ = parse(nest, "item");
}

Structure::Node Structure::parse(const py::object& nest, const std::string& path) {
  Node node;
  node.path = path;
  if (PyLong_Check(nest.ptr())) {
    node.leaf = nest.cast<std::uint32_t>();
    leaves_.at(node.leaf).path = path;
  } else if (PyDict_Check(nest.ptr())) {
    node.kind = Kind::kDict;
    const auto dict = nest.cast<py::dict>();
    node.keys = py::tuple(dict.size());
    std::size_t position = 0;
    for (const auto& [key, child] : dict) {
      node.keys[position++] = key;
      node.children.push_back(parse(py::reinterpret_borrow<py::object>(child), path + "[" + represent(key) + "]"));
    }
  } else if (PyList_Check(nest.ptr()) || PyTuple_Check(nest.ptr())) {
    const bool named = py::hasattr(nest, "_fields");
    node.kind = PyList_Check(nest.ptr()) ? Kind::kList : named ? Kind::kNamedTuple : Kind::kTuple;
    node.type = py::type::of(nest);
    std::size_t position = 0;
    for (const py::handle child : nest) {
      const std::string step = named ? "." + text(py::object(nest.attr("_fields"))[py::int_(position)])
                                     : "[" + std::to_string(position) + "]";
      node.children.push_back(parse(py::reinterpret_borrow<py::object>(child), path + step));
      ++position;
    }
  } else {
    raise(PyExc_TypeError, path + ": a nest is made of dict, list, tuple and leaf numbers, got " + type_name(nest));
  }
  return node;
}

void Structure::flatten(const Node& node, py::handle item, PyObject** out, std::size_t* count) const {
  PyObject* const object = item.ptr();
  switch (node.kind) {
    case Kind::kLeaf:
      out[(*count)++] = item.inc_ref().ptr();
      return;
    case Kind::kDict: {
      const std::size_t size = node.children.size();
      if (!PyDict_Check(object) || std::cmp_not_equal(PyDict_Size(object), size)) {
        raise_nest_mismatch(node.path, "a dict with keys " + represent(node.keys),
                            PyDict_Check(object) ? "keys " + keys_of(item) : type_name(item));
      }
      for (std::size_t i = 0; i < size; ++i) {
        PyObject* const child = PyDict_GetItemWithError(object, PyTuple_GET_ITEM(node.keys.ptr(), i));
        if (child == nullptr) {
          if (PyErr_Occurred() != nullptr) {
            throw py::error_already_set();
          }
          raise_nest_mismatch(node.path, "a dict with keys " + represent(node.keys), "keys " + keys_of(item));
        }
        flatten(node.children[i], child, out, count);
      }
      return;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kNamedTuple: {
      const bool is_list = PyList_Check(object) != 0;
      const bool right_kind = node.kind == Kind::kList ? is_list : PyTuple_Check(object) != 0;
      const std::size_t size = node.children.size();
      if (!right_kind || std::cmp_not_equal(PySequence_Fast_GET_SIZE(object), size)) {
        raise_nest_mismatch(
            node.path, (node.kind == Kind::kList ? "a list of " : "a tuple of ") + std::to_string(size),
            type_name(item) + (right_kind ? " of " + std::to_string(PySequence_Fast_GET_SIZE(object)) : ""));
      }
      for (std::size_t i = 0; i < size; ++i) {
        flatten(node.children[i], PySequence_Fast_GET_ITEM(object, static_cast<Py_ssize_t>(i)), out, count);
      }
      return;
    }
  }
}

py::object Structure::unflatten(const Node& node, py::object* leaves) const {
  const auto size = static_cast<Py_ssize_t>(node.children.size());
  switch (node.kind) {
    case Kind::kLeaf:
      break;
    case Kind::kDict: {
      py::dict dict;
      for (Py_ssize_t i = 0; i < size; ++i) {
        const py::object child = unflatten(node.children[static_cast<std::size_t>(i)], leaves);
        if (PyDict_SetItem(dict.ptr(), PyTuple_GET_ITEM(node.keys.ptr(), i), child.ptr()) != 0) {
          throw py::error_already_set();
        }
      }
      return dict;
    }
    case Kind::kList: {
      py::list list(size);
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyList_SET_ITEM(list.ptr(), i, unflatten(node.children[static_cast<std::size_t>(i)], leaves).release().ptr());
      }
      return list;
    }
    case Kind::kTuple:
    case Kind::kNamedTuple: {
      py::tuple tuple(size);
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyTuple_SET_ITEM(tuple.ptr(), i, unflatten(node.children[static_cast<std::size_t>(i)], leaves).release().ptr());
      }
      return node.kind == Kind::kTuple ? py::object(tuple) : node.type(*tuple);
    }
  }
  return std::move(leaves[node.leaf]);
}

void register_structure(py::module_& module) {
  py::class_<Structure, std::shared_ptr<Structure>>(module, "Structure", "A nest of leaves that items must have.")
      .def(py::init<const py::object&, const py::sequence&>(), py::arg("nest"), py::arg("leaves"));
}

}  // namespace pyecho::bindings
