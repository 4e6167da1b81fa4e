// The nest of an example and its leaves: taking items apart, putting batches together. Dicts, lists, tuples and namedtuples
// are read and made natively, other nodes through their description (pyecho/nodes.py).
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/numpy_api.hpp"

namespace pyecho::bindings {

// One leaf of the nest. An array leaf has a dtype and the shape of one example; a reference leaf (str, bytes, any object)
// has neither and travels as a Python reference.
struct LeafSpec {
  std::string path;  // how a message names it: item['image']
  bool by_reference = false;
  std::string seen;  // of a reference leaf: type of the first item's object, and arrays are refused; empty: any will do
  pybind11::object dtype = pybind11::none();  // numpy.dtype; none for a reference leaf
  std::vector<npy_intp> shape;
  std::size_t size_bytes = 0;  // of one example; 0 for a reference leaf

  // "float32 array of shape (3, 32, 32)"
  [[nodiscard]] std::string describe() const;
};

class Structure {
 public:
  static constexpr std::size_t kInlineLeaves = 8;  // nests of so few leaves are handled without an allocation

  // `tree`: a leaf number (int), or a description whose children are such trees; leaves are numbered in order. `leaves`:
  // per leaf (dtype, shape), or for a reference leaf the name of the type that the first item has there, or None.
  Structure(const pybind11::object& tree, const pybind11::sequence& leaves);

  [[nodiscard]] const std::vector<LeafSpec>& leaves() const noexcept { return leaves_; }

  // Appends new references to the leaves of `item`, in leaf order, to `out` (room for leaves().size()). Raises
  // SpecMismatch if the nest differs; `out` then holds *count references. What Python code runs meanwhile (of keys that
  // compare themselves, of nodes that are described) may change the item.
  void flatten(pybind11::handle item, PyObject** out, std::size_t* count) const { flatten(root_, item, out, count); }
  // The nest with these leaves (leaves().size() of them), which are moved from.
  [[nodiscard]] pybind11::object unflatten(pybind11::object* leaves) const { return unflatten(root_, leaves); }

 private:
  enum class Kind : unsigned char { kLeaf, kDict, kList, kTuple, kNamedTuple, kOther };
  struct Node {
    Kind kind = Kind::kLeaf;
    std::string path;
    std::uint32_t leaf = 0;
    std::vector<Node> children;
    pybind11::tuple keys;  // of a dict; the names of a namedtuple
    pybind11::object type;
    pybind11::object rebuild;  // list of children -> node; null: made natively
    pybind11::object read;     // item -> list of children, or str: what it is or has instead
    std::string expected;      // what `read` wants, for messages
  };

  Node parse(const pybind11::object& tree, const std::string& path);
  [[noreturn]] static void mismatch(const Node& node, pybind11::handle item);
  [[nodiscard]] static bool has_names(PyObject* tuple, const Node& node);
  void flatten(const Node& node, pybind11::handle item, PyObject** out, std::size_t* count) const;
  pybind11::object unflatten(const Node& node, pybind11::object* leaves) const;

  std::vector<LeafSpec> leaves_;
  Node root_;
};

// While it lives, one level of a walk down a nest: nests may be deeper than the stack, and contain themselves. Raises
// RecursionError.
class Descent {
 public:
  Descent() {
    if (Py_EnterRecursiveCall(" in a nest") != 0) {
      throw pybind11::error_already_set();
    }
  }
  ~Descent() { Py_LeaveRecursiveCall(); }
  Descent(const Descent&) = delete;
  Descent& operator=(const Descent&) = delete;
};

// A tuple of this type, which is tuple or a namedtuple. Calls no Python.
pybind11::object tuple_of_type(PyTypeObject* type, pybind11::tuple children);

void register_structure(pybind11::module_& module);

}  // namespace pyecho::bindings
