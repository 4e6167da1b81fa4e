// What batch echoing compares before each repeat of an item (see sharing.hpp), and how it is kept.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pyecho::bindings {

// One thing that is watched, with what it was:
//   a tensor | its version | none            a list | tuple of its elements | none
//   a dict   | a copy      | none            else   | tuple of its children | its description (pyecho.nodes.Node)
struct Guard {
  pybind11::object object;  // null: a place that was not needed
  pybind11::object was;
  pybind11::object description;
};

// Containers come before what they contain, so the first guard that finds a change can still be reached from the item.
class Guards {
 public:
  // Keeps a place for a container, before its contents are guarded.
  [[nodiscard]] std::size_t place();
  void set(std::size_t place, pybind11::object object, pybind11::object was,
           pybind11::object description = pybind11::none());
  // Forgets everything behind a place.
  void drop_behind(std::size_t place) { guards_.resize(place + 1); }

  // As one Python object, which the garbage collector sees; null if there are no guards.
  [[nodiscard]] pybind11::object packed(const pybind11::object& item) const;

 private:
  std::vector<Guard> guards_;
};

// The version of a tensor, or null for an inference tensor, which has none.
[[nodiscard]] pybind11::object version_of(PyObject* tensor);

// How a path names what has changed, beginning at `object`: empty if it has changed itself, or has other children in number.
// Nothing if it is what it was. Children are compared by identity. Python code runs for described objects, and for dicts
// whose entries are in another order.
[[nodiscard]] std::optional<std::string> change_of(pybind11::handle object, pybind11::handle was,
                                                   pybind11::handle description);

// `path_to`: (item, object inside) -> how a path names it, or None. For the messages of check_guards().
void name_paths_with(pybind11::object path_to);

}  // namespace pyecho::bindings
