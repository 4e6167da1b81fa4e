// Serializes calls of any threads; a finalizer leaves its call to the thread whose turn it is (pyecho/run/run.py).
#include <deque>
#include <exception>
#include <memory>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"
#include "bindings/section.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Serialises calls that change the same state, without waiting. For calls by threads, signal handlers and the garbage
// collector, which may interrupt one another at any point, so a lock would block or deadlock. The GIL, or else a
// Section, makes each member atomic up to the call of a function.
class Turns {
 public:
  // Calls function() now, then the functions posted meanwhile. Returns its result. Raises EchoError if a call is under
  // way.
  py::object run(const py::object& function) {
    if (taken_) {
      raise(
          errors().echo_error,
          "another thread is about to begin an iteration here; a loader has one iteration at a time, so make a loader "
          "for each thread");
    }
    return serve(function);
  }
  // Calls function() now. If a call is under way in any thread, that call runs function() at its end instead. If
  // function() raises (Ctrl-C), it is called once more, so it must tolerate a second call.
  void post(py::object function) {
    posted_.push_back(std::move(function));
    if (!taken_) {
      serve({});
    }
  }

  [[nodiscard]] const SectionLock& lock() const noexcept { return lock_; }

 private:
  // Calls `function`, if there is one, then the posted functions. Throws the last exception once none is left.
  py::object serve(const py::object& function) {
    std::exception_ptr raised;
    const auto call = [&raised](const py::object& called) {
      try {
        return call_python(called);
      } catch (const std::exception&) {
        raised = std::current_exception();
        return py::object();
      }
    };
    taken_ = true;
    py::object result = function ? call(function) : py::object();
    while (!posted_.empty()) {
      const py::object posted = std::exchange(posted_.front(), {});
      posted_.pop_front();
      if (!call(posted)) {
        call(posted);
      }
    }
    taken_ = false;
    if (raised) {
      std::rethrow_exception(raised);
    }
    return result;
  }

  [[no_unique_address]] SectionLock lock_;
  bool taken_ = false;
  std::deque<py::object> posted_;
};

}  // namespace

void register_turns(py::module_& module) {
  py::class_<Turns, std::shared_ptr<Turns>>(module, "Turns", "Calls that take turns without waiting for one another.")
      .def(py::init<>())
      .def("run", guarded<Turns>(&Turns::run), py::arg("function"))
      .def("post", guarded<Turns>(&Turns::post), py::arg("function"));
}

}  // namespace pyecho::bindings
