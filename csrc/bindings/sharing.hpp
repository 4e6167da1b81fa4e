// Protects and watches items of batch echoing, because all uses of an item share one storage.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

struct SharedItem {
  pybind11::object item;    // the item with read-only views for its NumPy arrays; itself if it has none
  pybind11::object guards;  // for check_guards(), visible to the garbage collector; null: nothing to check
};

// Watches the versions of torch tensors, and the identity of the children of dicts, lists, described nodes and objects
// with arrays inside. Runs Python code only for described nodes and such objects, and raises any exception of that
// code.
[[nodiscard]] SharedItem share_item(pybind11::handle item);

// Raises EchoMutated if the item has changed since. The caller must keep references to both, because user code may run.
void check_guards(pybind11::handle item, pybind11::handle guards);

}  // namespace pyecho::bindings
