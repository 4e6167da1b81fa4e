#include "bindings/turns.hpp"

#include <exception>
#include <memory>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/waiting.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

class Turns::Turn {
 public:
  explicit Turn(bool& taken) : taken_(taken) { taken_ = true; }
  ~Turn() { taken_ = false; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  bool& taken_;
};

// Calls the posted functions. Throws the last exception once none is left.
void Turns::serve() {
  std::exception_ptr raised;
  while (!posted_.empty()) {
    const py::object function = std::exchange(posted_.front(), {});
    posted_.pop_front();
    try {
      call_python(function);
    } catch (const py::error_already_set&) {
      raised = std::current_exception();
      try {
        call_python(function);
      } catch (const py::error_already_set&) {
        raised = std::current_exception();
      }
    }
  }
  if (raised) {
    std::rethrow_exception(raised);
  }
}

py::object Turns::run(const py::object& function) {
  if (taken_) {
    raise(errors().echo_error,
          "another thread is about to begin an iteration here; a loader has one iteration at a time, so make a loader "
          "for each thread");
  }
  const Turn turn(taken_);
  py::object result;
  try {
    result = call_python(function);
  } catch (const py::error_already_set&) {
    serve();
    throw;
  }
  serve();
  return result;
}

void Turns::post(py::object function) {
  posted_.push_back(std::move(function));
  if (!taken_) {
    const Turn turn(taken_);
    serve();
  }
}

void register_turns(py::module_& module) {
  py::class_<Turns, std::shared_ptr<Turns>>(module, "Turns", "Calls that take turns without waiting for one another.")
      .def(py::init<>())
      .def("run", &Turns::run, py::arg("function"))
      .def("post", &Turns::post, py::arg("function"));
}

}  // namespace pyecho::bindings
