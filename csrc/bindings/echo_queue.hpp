// pyecho._core.EchoQueue: the native stage of batch echoing. Python objects go through by reference.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/stage/echo_queue.hpp"

namespace pyecho::bindings {

// All members with the GIL held; waits release it.
class EchoQueueObject {
 public:
  // `transform`: None, or called for every use with (item, source index, use); the consumer gets what it returns.
  EchoQueueObject(const EchoQueueConfig& config, pybind11::object transform);
  ~EchoQueueObject() { drop_items(); }
  EchoQueueObject(const EchoQueueObject&) = delete;
  EchoQueueObject& operator=(const EchoQueueObject&) = delete;

  // `guards`: None, or of share_item(): what must not have changed before a repeat, else the consumer gets EchoMutated.
  void put(const pybind11::object& item, const pybind11::object& guards);
  void close() { core_.close(); }
  void fail(pybind11::object error);
  void stop();

  // The next use as a new reference, or null at the end of input; raises what fail() was given, Closed, EchoMutated, and
  // what the transform raises, which then is called again for the same use the next time.
  PyObject* next_reference();
  [[nodiscard]] bool& busy() noexcept { return busy_; }

  [[nodiscard]] pybind11::dict stats() const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Item {
    PyObject* object = nullptr;  // strong
    PyObject* guards = nullptr;  // strong, or null
  };

  // A use that was taken off the queue.
  struct Emission {
    pybind11::object object;  // null: none
    pybind11::object guards;  // or null
    std::uint64_t source_index = 0;
    std::uint32_t ordinal = 0;
  };

  PyObject* transformed(Emission emission);
  void drop_items();

  EchoQueue core_;
  std::vector<Item> items_;  // by slot; a slot is one thread's at a time
  Emission pending_;         // what the transform failed to make a use of
  pybind11::object transform_;
  pybind11::object failure_ = pybind11::none();
  bool busy_ = false;  // a consumer is inside next_reference()
};

void register_echo_queue(pybind11::module_& module);

}  // namespace pyecho::bindings
