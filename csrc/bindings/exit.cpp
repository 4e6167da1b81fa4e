// A thread inside a source can outlive the interpreter. Before Python 3.14 it is unwound as soon as it requests the GIL
// (see ParkIfKilled). If the unwinding meets a C++ destructor, as in PyTorch's operations, it calls std::terminate()
// without an exception. A thread that C++ started, such as a process group's, ends the process then, as it does without
// pyecho: parked with a mutex of its own, it would stop the exit for ever.
#include <pthread.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

using Threads = std::vector<unsigned long>;

std::atomic<const Threads*> parked{nullptr};  // Python's other threads, from the beginning of the exit; never freed
std::terminate_handler handler_before = nullptr;

[[noreturn]] void park_unwound() {
  const Threads& threads = *parked.load(std::memory_order_acquire);
  const auto self = reinterpret_cast<unsigned long>(pthread_self());
  while (std::current_exception() == nullptr && std::ranges::find(threads, self) != threads.end()) {
    pause();
  }
  handler_before();
  std::abort();
}

void begin_exit(Threads threads) {
  parked.store(new Threads(std::move(threads)), std::memory_order_release);
  if (handler_before == nullptr) {
    handler_before = std::set_terminate(park_unwound);
  }
}

}  // namespace

void register_exit(py::module_& module) {
  module.def("begin_exit", &begin_exit, py::arg("threads"),
             "Python exits. None of the given threads (identifiers) aborts the process any more when Python ends it.");
  module.def(
      "exit_thread", [](unsigned long ident) { PyThreadState_SetAsyncExc(ident, PyExc_SystemExit); }, py::arg("ident"),
      "Ask a thread to end, by SystemExit.");
}

}  // namespace pyecho::bindings
