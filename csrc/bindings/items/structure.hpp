// The nest of an example and its leaves. Flattens items and unflattens batches. Dicts, lists, tuples and namedtuples
// are handled natively, other nodes through their description (pyecho/items/nodes.py).
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bindings/numpy_api.hpp"
#include "core/memory/slot_layout.hpp"

namespace pyecho::bindings {

// One leaf of the nest. An array leaf has a dtype and the shape of one example. A reference leaf (str, bytes, any
// object) has neither and travels as a Python reference.
struct LeafSpec {
  // `field`: a pyecho.Field. `where`: its path. `name`: its keys, joined by dots.
  LeafSpec(const pybind11::object& field, std::string where, std::string name);

  std::string path;  // for messages: item['image']
  std::string name;
  bool by_reference;
  std::string seen;  // reference leaf: the type of the first item's object; arrays are then refused, unless it is empty
  std::string described = "an object";        // for messages: "float32 array of shape (3, 32, 32)"
  pybind11::object dtype = pybind11::none();  // numpy.dtype; none for a reference leaf
  std::vector<npy_intp> shape;                // -1 where it differs from example to example
  std::size_t size_bytes = 0;                 // of one example; 0 for a reference leaf, and for one of variable size
  VariableLeaf variable{};
};

class Structure {
 public:
  // `spec`: a nest of fields. `node_of`: value -> pyecho.items.nodes.Node, or None for a leaf.
  Structure(const pybind11::object& spec, const pybind11::object& node_of) : root_(parse(spec, node_of, "item", "")) {}

  [[nodiscard]] const std::vector<LeafSpec>& leaves() const noexcept { return leaves_; }
  // The places of leaves that travel by reference.
  [[nodiscard]] const std::vector<std::size_t>& reference_leaves() const noexcept { return reference_leaves_; }
  [[nodiscard]] bool has_references() const noexcept { return !reference_leaves_.empty(); }

  // Sets `leaves`, leaves().size() of them, to those of `item`, in leaf order. Raises SpecMismatch if the nest differs.
  // Python code may run (comparisons of keys, described nodes) and may change the item.
  void flatten(pybind11::handle item, std::span<pybind11::object> leaves) const {
    pybind11::object* next = leaves.data();
    flatten(root_, pybind11::reinterpret_borrow<pybind11::object>(item), next);
  }
  // Returns the nest with these leaves (leaves().size() of them). Moves from the leaves.
  [[nodiscard]] pybind11::object unflatten(std::vector<pybind11::object>& leaves) const {
    pybind11::object* next = leaves.data();
    return unflatten(root_, next);
  }

 private:
  struct Node {
    std::string path;
    std::vector<Node> children;
    pybind11::object type;
    pybind11::tuple keys;      // of a dict
    pybind11::object blank;    // a dict with these keys, if they are many: to grow key by key takes twice as long
    pybind11::object rebuild;  // list of children -> node; null: made natively
    pybind11::object read;     // item -> list of children, or raises SpecMismatch; null: a leaf
  };

  Node parse(const pybind11::object& spec, const pybind11::object& node_of, const std::string& path,
             const std::string& name);
  static void flatten(const Node& node, pybind11::object item, pybind11::object*& next);
  static bool flatten_natively(const Node& node, PyObject* object, pybind11::object*& next);
  static void flatten_described(const Node& node, pybind11::handle item, pybind11::object*& next);
  static pybind11::object unflatten(const Node& node, pybind11::object*& next);

  std::vector<LeafSpec> leaves_;
  std::vector<std::size_t> reference_leaves_;
  Node root_;
};

// Returns a tuple of this type, which is tuple or a namedtuple. Calls no Python.
pybind11::object tuple_of_type(PyTypeObject* type, pybind11::tuple children);

}  // namespace pyecho::bindings
