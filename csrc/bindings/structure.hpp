// The nest of an example and its leaves. Flattens items and unflattens batches. Dicts, lists, tuples and namedtuples are
// handled natively, other nodes through their description (pyecho/nodes.py).
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/numpy_api.hpp"

namespace pyecho::bindings {

// One leaf of the nest. An array leaf has a dtype and the shape of one example. A reference leaf (str, bytes, any object)
// has neither and travels as a Python reference.
struct LeafSpec {
  std::string path;  // for messages: item['image']
  bool by_reference = false;
  std::string seen;  // reference leaf: the type of the first item's object; arrays are then refused, unless it is empty
  pybind11::object dtype = pybind11::none();  // numpy.dtype; none for a reference leaf
  std::vector<npy_intp> shape;
  std::size_t size_bytes = 0;  // of one example; 0 for a reference leaf

  // "float32 array of shape (3, 32, 32)"
  [[nodiscard]] std::string describe() const;
};

class Structure {
 public:
  static constexpr std::size_t kInlineLeaves = 8;  // nests with at most this many leaves need no allocation

  // `tree`: a leaf number (int), or a description whose children are such trees; leaves are numbered in order. `leaves`:
  // per leaf (dtype, shape), or for a reference leaf the type's name in the first item (see LeafSpec::seen), or None.
  Structure(const pybind11::object& tree, const pybind11::sequence& leaves);

  [[nodiscard]] const std::vector<LeafSpec>& leaves() const noexcept { return leaves_; }

  // Appends new references to the leaves of `item`, in leaf order, to `out` (room for leaves().size()). Raises
  // SpecMismatch if the nest differs; `out` then holds *count references. Python code may run (comparisons of keys,
  // described nodes) and may change the item.
  void flatten(pybind11::handle item, PyObject** out, std::size_t* count) const { flatten(root_, item, out, count); }
  // Returns the nest with these leaves (leaves().size() of them). Moves from the leaves.
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
    pybind11::object read;     // item -> list of children, or a str that describes the mismatch
    std::string expected;      // description of a matching item, for messages
  };

  Node parse(const pybind11::object& tree, const std::string& path);
  [[noreturn]] static void mismatch(const Node& node, pybind11::handle item);
  [[nodiscard]] static bool has_names(PyObject* tuple, const Node& node);
  void flatten(const Node& node, pybind11::handle item, PyObject** out, std::size_t* count) const;
  pybind11::object unflatten(const Node& node, pybind11::object* leaves) const;

  std::vector<LeafSpec> leaves_;
  Node root_;
};

// Counts one level of a walk down a nest, until it is destroyed. Raises RecursionError for nests that are too deep for the
// stack or contain themselves.
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

// Returns a tuple of this type, which is tuple or a namedtuple. Calls no Python.
pybind11::object tuple_of_type(PyTypeObject* type, pybind11::tuple children);

void register_structure(pybind11::module_& module);

}  // namespace pyecho::bindings
