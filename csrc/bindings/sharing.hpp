#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

struct SharedItem {
  pybind11::object item;
  pybind11::object guards;  // null: none
};

inline SharedItem share_item(pybind11::handle item) {
  return {.item = pybind11::reinterpret_borrow<pybind11::object>(item), .guards = {}};
}
inline void check_guards(pybind11::handle) {}

}  // namespace pyecho::bindings
