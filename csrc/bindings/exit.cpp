// A thread inside a source can outlive the interpreter. Before Python 3.14 it is unwound as soon as it requests the GIL
// (see ParkIfKilled). If the unwinding meets a C++ destructor, as in PyTorch's operations, the process is aborted.
#include "bindings/exit.hpp"

#include <unistd.h>

#include <cstdlib>
#include <exception>

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

thread_local bool is_ours = false;
std::terminate_handler handler_before = nullptr;

[[noreturn]] void park_ours() {
  while (is_ours) {
    pause();
  }
  handler_before();
  std::abort();
}

void exit_thread(unsigned long ident) {
  PyThreadState_SetAsyncExc(ident, PyExc_SystemExit);
  if (handler_before == nullptr) {
    handler_before = std::set_terminate(park_ours);
  }
}

}  // namespace

void register_exit(py::module_& module) {
  module.def("enter_thread", [] { is_ours = true; }, "Mark the calling thread as one of pyecho's.");
  module.def("exit_thread", &exit_thread, py::arg("ident"),
             "Ask a thread of pyecho's to end, by SystemExit. If it does not, keep it from aborting the process when "
             "Python ends it. Call this when Python exits.");
}

}  // namespace pyecho::bindings
