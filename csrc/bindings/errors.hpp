// The exception types of pyecho, and the conversion of native outcomes to exceptions.
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
  PyObject* checkpoint_error;  // also a ValueError
};
[[nodiscard]] const ErrorTypes& errors() noexcept;

// Sets a Python exception and throws pybind11::error_already_set.
[[noreturn]] void raise(PyObject* type, const std::string& message);
// Same, with this exception as its cause.
[[noreturn]] void raise_from(pybind11::handle cause, PyObject* type, const std::string& message);

// Throws pybind11::error_already_set if a function of CPython's has failed, with an exception set.
inline void throw_if(bool failed) {
  if (failed) {
    throw pybind11::error_already_set();
  }
}

// Returns the object of the new reference that such a function has returned; null: it has failed.
template <class Object = pybind11::object>
Object owned(PyObject* made) {
  throw_if(made == nullptr);
  return pybind11::reinterpret_steal<Object>(made);
}

// In a catch block of a function that CPython calls: sets what was thrown as the Python exception.
void set_caught() noexcept;

// Checks the argument of fail(). Raises TypeError if it is not an exception object. Wraps StopIteration in a
// RuntimeError, as generators do, because it would end the consumer's loop silently.
pybind11::object checked_failure(const pybind11::object& error);

// Raises an exception object with its own traceback.
[[noreturn]] void raise_object(const pybind11::object& error);

// Raises the exception for kForked, or else for kClosed. `what` names the object ("EchoBuffer").
[[noreturn]] void raise_outcome(Outcome outcome, const std::string& what);

// Formats a size for messages: "1.5 MiB (1572864 bytes)".
[[nodiscard]] std::string readable_bytes(std::size_t bytes);

}  // namespace pyecho::bindings
