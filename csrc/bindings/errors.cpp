#include "bindings/errors.hpp"

#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

ErrorTypes types;

PyObject* add_type(py::module_& module, const char* name, const char* doc, PyObject* base, PyObject* builtin) {
  const py::object bases = builtin == nullptr ? py::reinterpret_borrow<py::object>(base)
                                              : py::object(py::make_tuple(py::handle(base), py::handle(builtin)));
  const std::string full_name = std::string("pyecho.") + name;
  py::object type = owned(PyErr_NewExceptionWithDoc(full_name.c_str(), doc, bases.ptr(), nullptr));
  module.attr(name) = type;  // the module holds one reference, `types` the other
  return type.release().ptr();
}

}  // namespace

const ErrorTypes& errors() noexcept { return types; }

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw py::error_already_set();
}

void raise_from(py::handle cause, PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  const py::error_already_set error;
  PyException_SetCause(error.value().ptr(), Py_NewRef(cause.ptr()));
  throw py::error_already_set(error);
}

void set_caught() noexcept {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, kNoMemory);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

py::object checked_failure(const py::object& error) {
  if (!PyExceptionInstance_Check(error.ptr())) {
    raise(PyExc_TypeError, "fail() needs an exception object, got " + std::string(py::repr(error)));
  }
  if (PyErr_GivenExceptionMatches(error.ptr(), PyExc_StopIteration) == 0) {
    return error;
  }
  const auto runtime_error = py::reinterpret_borrow<py::object>(PyExc_RuntimeError);
  py::object wrapped = runtime_error("the producer raised StopIteration");
  wrapped.attr("__cause__") = error;
  return wrapped;
}

void raise_object(const py::object& error) {
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

void raise_outcome(Outcome outcome, const std::string& what) {
  if (outcome == Outcome::kForked) {
    raise(types.echo_error,
          "this " + what +
              " was made before fork() and its threads stayed in the parent process; make a new one in"
              " the child, or use the 'spawn' start method");
  }
  raise(types.closed, "this " + what + " is closed and takes no more; make a new one");
}

std::string readable_bytes(std::size_t bytes) {
  const char* unit = "KiB";
  double count = static_cast<double>(bytes) / 1024;
  for (const char* const larger : {"MiB", "GiB", "TiB"}) {
    if (count >= 1024) {
      count /= 1024;
      unit = larger;
    }
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s (%zu bytes)", count, unit, bytes);
  return text.data();
}

void register_errors(py::module_& module) {
  py::register_local_exception_translator([](std::exception_ptr raised) {
    try {
      std::rethrow_exception(std::move(raised));
    } catch (const std::bad_alloc&) {
      set_caught();
    }
  });
  types.echo_error = add_type(module, "EchoError", "Base of all errors that pyecho raises.", PyExc_Exception, nullptr);
  types.config_error = add_type(module, "ConfigError", "An argument is wrong, or arguments do not fit together.",
                                types.echo_error, PyExc_ValueError);
  types.spec_mismatch = add_type(module, "SpecMismatch", "An item differs in structure, shape or dtype from the first.",
                                 types.echo_error, PyExc_ValueError);
  types.closed =
      add_type(module, "Closed", "The buffer or loader was used after it was closed.", types.echo_error, nullptr);
  types.put_timeout =
      add_type(module, "PutTimeout", "No slot became free within the timeout.", types.echo_error, PyExc_TimeoutError);
  types.buffer_exhausted =
      add_type(module, "BufferExhausted", "The consumer holds every batch that max_bytes, or the system, allows.",
               types.echo_error, PyExc_MemoryError);
  types.echo_mutated = add_type(module, "EchoMutated", "The consumer changed an item in place between two of its uses.",
                                types.echo_error, PyExc_RuntimeError);
  types.checkpoint_error =
      add_type(module, "CheckpointError", "A saved state is damaged, or belongs to another configuration or source.",
               types.echo_error, PyExc_ValueError);
  add_type(module, "WorkerError", "Two worker processes died while they made one item.", types.echo_error,
           PyExc_RuntimeError);
  add_type(module, "CudaError", "CUDA is missing, or no memory can be pinned.", types.echo_error, PyExc_RuntimeError);
}

}  // namespace pyecho::bindings
