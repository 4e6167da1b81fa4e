// The exception types of pyecho, and how native outcomes become exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>

#include "core/sync/outcome.hpp"

namespace pyecho::bindings {

// Borrowed references that live as long as the module.
struct ErrorTypes {
  PyObject* echo_error;
  PyObject* config_error;   // also a ValueError
  PyObject* spec_mismatch;  // also a ValueError
  PyObject* closed;
  PyObject* put_timeout;       // also a TimeoutError
  PyObject* buffer_exhausted;  // also a MemoryError
  PyObject* echo_mutated;      // also a RuntimeError
  PyObject* cuda_error;        // also a RuntimeError; attributes code, name, call
};
[[nodiscard]] const ErrorTypes& errors() noexcept;

// Sets a Python exception and throws pybind11::error_already_set.
[[noreturn]] void raise(PyObject* type, const std::string& message);

// What fail() was given, if it is an exception object; else raises TypeError. A StopIteration, which would end the
// consumer's loop in silence, comes back inside a RuntimeError, as from a generator.
pybind11::object checked_failure(const pybind11::object& error);

// Raises an exception object as it is, with the traceback it carries.
[[noreturn]] void raise_object(const pybind11::object& error);

// The exception for an outcome that both sides can meet: kClosed, kForked. `what` names the object ("EchoBuffer").
[[noreturn]] void raise_outcome(Outcome outcome, const std::string& what);

// How a size reads in a message: "1.5 MiB", and exactly how many bytes.
[[nodiscard]] std::string readable_bytes(std::size_t bytes);

void register_errors(pybind11::module_& module);

}  // namespace pyecho::bindings
