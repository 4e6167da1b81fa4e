// Guards detect changes of an item between its uses in batch echoing (see sharing.hpp).
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pyecho::bindings {

// A watched object and its former state (object | was | description):
//   a tensor | its version | none            a list | tuple of its elements | none
//   a dict   | a copy      | none            else   | tuple of its children | its description (pyecho.nodes.Node)
struct Guard {
  pybind11::object object;  // null: an unused place
  pybind11::object was;
  pybind11::object description;
};

// Containers precede their contents, so the object of the first guard that finds a change is still reachable from the
// item.
class Guards {
 public:
  // Reserves a place for a container, before its contents are guarded.
  [[nodiscard]] std::size_t place();
  void set(std::size_t place, pybind11::object object, pybind11::object was,
           pybind11::object description = pybind11::none());
  // Drops all guards after a place.
  void drop_behind(std::size_t place) { guards_.resize(place + 1); }

  // Returns the guards as one Python object, visible to the garbage collector; null if there are none.
  [[nodiscard]] pybind11::object packed(const pybind11::object& item) const;

 private:
  std::vector<Guard> guards_;
};

// Returns the version of a tensor, or null for an inference tensor, because it has none.
[[nodiscard]] pybind11::object version_of(PyObject* tensor);

// Returns the step from `object` to the changed child, or "" if the object itself or its number of children has changed.
// Returns nothing if there is no change. Compares children by identity. Runs Python code for described objects, and for
// dicts whose entries are in another order.
[[nodiscard]] std::optional<std::string> change_of(pybind11::handle object, pybind11::handle was,
                                                   pybind11::handle description);

// Sets `path_to`: (item, object inside) -> path of the object, or None. Used in the messages of check_guards().
void name_paths_with(pybind11::object path_to);

}  // namespace pyecho::bindings
