// A thread inside a source can outlive the interpreter. Before Python 3.14 it is unwound as soon as it requests the GIL
// (see ParkIfKilled). If the unwinding meets a C++ destructor, as in PyTorch's operations, it calls std::terminate()
// without an exception.
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

thread_local bool exits = false;  // Python exits in this thread
std::terminate_handler handler_before = nullptr;

[[noreturn]] void park_unwound() {
  while (!exits && std::current_exception() == nullptr) {
    pause();
  }
  handler_before();
  std::abort();
}

void begin_exit() {
  exits = true;
  if (handler_before == nullptr) {
    handler_before = std::set_terminate(park_unwound);
  }
}

}  // namespace

void register_exit(py::module_& module) {
  module.def("begin_exit", &begin_exit,
             "Python exits in the calling thread. No other thread aborts the process any more when Python ends it, "
             "the program's own daemon threads included.");
  module.def(
      "exit_thread", [](unsigned long ident) { PyThreadState_SetAsyncExc(ident, PyExc_SystemExit); }, py::arg("ident"),
      "Ask a thread to end, by SystemExit.");
}

}  // namespace pyecho::bindings
