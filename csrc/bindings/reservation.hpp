// pyecho._core.Reservation: a slot for Python code to fill in place.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

namespace pyecho::bindings {

// Reserves a slot of an EchoBuffer (the Python object).
pybind11::object make_reservation(const pybind11::object& buffer, std::optional<double> timeout_s);

void register_reservation(pybind11::module_& module);

}  // namespace pyecho::bindings
