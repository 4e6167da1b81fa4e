// pyecho._core.Turns: calls that change the same thing take turns, and none of them waits for another.
#pragma once

#include <pybind11/pybind11.h>

#include <deque>

namespace pyecho::bindings {

// For what threads, signal handlers and the garbage collector call at any point, also in the middle of one another: a lock
// would block them, or deadlock. The GIL makes each member atomic up to the call of a function.
class Turns {
 public:
  // Calls function() now, and then what was posted meanwhile; returns its result. Raises EchoError if a call is under way.
  pybind11::object run(const pybind11::object& function);
  // Calls function() now; or leaves it to the call that is under way, in whatever thread, which then does it at its end.
  // An exception (Ctrl-C) has the function called once more, so it must bear that.
  void post(pybind11::object function);

 private:
  class Turn;
  void serve();

  bool taken_ = false;
  std::deque<pybind11::object> posted_;
};

void register_turns(pybind11::module_& module);

}  // namespace pyecho::bindings
