// pyecho._core.Turns: serialises calls that change the same state, without waiting.
#pragma once

#include <pybind11/pybind11.h>

#include <deque>

namespace pyecho::bindings {

// For calls by threads, signal handlers and the garbage collector, which may interrupt one another at any point, so a lock
// would block or deadlock. The GIL makes each member atomic up to the call of a function.
class Turns {
 public:
  // Calls function() now, then the functions posted meanwhile. Returns its result. Raises EchoError if a call is under way.
  pybind11::object run(const pybind11::object& function);
  // Calls function() now. If a call is under way in any thread, that call runs function() at its end instead. If function()
  // raises (Ctrl-C), it is called once more, so it must tolerate a second call.
  void post(pybind11::object function);

 private:
  class Turn;
  void serve();

  bool taken_ = false;
  std::deque<pybind11::object> posted_;
};

void register_turns(pybind11::module_& module);

}  // namespace pyecho::bindings
