// What batch echoing does to an item whose uses share one storage: it is protected where that is possible, and watched.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

struct SharedItem {
  pybind11::object item;    // the item with read-only views for its NumPy arrays; itself if it has none
  pybind11::object guards;  // what check_guards() compares (visible to the garbage collector); null: nothing
};

// Watched are the versions of torch tensors, and which objects the dicts, lists and described nodes of the nest contain,
// as well as objects in which arrays are found. Python code runs for the latter two only. Raises what that raises.
[[nodiscard]] SharedItem share_item(pybind11::handle item);

// Raises EchoMutated if something has changed since. The caller keeps a reference to `guards`: user code may run.
void check_guards(pybind11::handle guards);

void register_sharing(pybind11::module_& module);

}  // namespace pyecho::bindings
