// The nest of an example (dicts, lists, tuples, namedtuples) and its leaves: taking items apart, putting batches together.
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
  bool by_reference;
  pybind11::object dtype;  // numpy.dtype; none for a reference leaf
  std::vector<npy_intp> shape;
  std::size_t size_bytes;  // of one example; 0 for a reference leaf

  // "float32 array of shape (3, 32, 32)"
  [[nodiscard]] std::string describe() const;
};

class Structure {
 public:
  static constexpr std::size_t kInlineLeaves = 8;  // nests of so few leaves are handled without an allocation

  // `nest`: the example's nest with leaf numbers (int) for leaves, in order. `leaves`: per leaf None (by reference) or
  // (dtype, shape).
  Structure(const pybind11::object& nest, const pybind11::sequence& leaves);

  [[nodiscard]] const std::vector<LeafSpec>& leaves() const noexcept { return leaves_; }

  // Appends new references to the leaves of `item`, in leaf order, to `out` (room for leaves().size()). Raises
  // SpecMismatch if the nest differs; `out` then holds *count references.
  void flatten(pybind11::handle item, PyObject** out, std::size_t* count) const { flatten(root_, item, out, count); }
  // The nest with these leaves (leaves().size() of them), which are moved from.
  [[nodiscard]] pybind11::object unflatten(pybind11::object* leaves) const { return unflatten(root_, leaves); }

 private:
  enum class Kind : unsigned char { kLeaf, kDict, kList, kTuple, kNamedTuple };
  struct Node {
    Kind kind = Kind::kLeaf;
    std::string path;
    std::uint32_t leaf = 0;
    pybind11::tuple keys;   // of a dict
    pybind11::object type;  // of a namedtuple
    std::vector<Node> children;
  };

  Node parse(const pybind11::object& nest, const std::string& path);
  void flatten(const Node& node, pybind11::handle item, PyObject** out, std::size_t* count) const;
  pybind11::object unflatten(const Node& node, pybind11::object* leaves) const;

  std::vector<LeafSpec> leaves_;
  Node root_;
};

void register_structure(pybind11::module_& module);

}  // namespace pyecho::bindings
