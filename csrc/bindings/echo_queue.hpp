// pyecho._core.EchoQueue: the native stage of batch echoing. Python objects pass by reference.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "bindings/sharing.hpp"
#include "bindings/stage.hpp"
#include "core/stage/echo_queue.hpp"

namespace pyecho::bindings {

// All members need the GIL; waits release it.
class EchoQueueObject final : public Stage {
 public:
  // `transform`: None, or called for every use with (item, source index, use); the consumer gets its result.
  // `prepare`: None, or called with every item of the source; its result is queued. `shared`: items of the source are
  // protected between their uses (sharing.hpp).
  EchoQueueObject(const EchoQueueConfig& config, pybind11::object transform, pybind11::object prepare, bool shared);
  ~EchoQueueObject() override { drop_items(); }
  EchoQueueObject(const EchoQueueObject&) = delete;
  EchoQueueObject& operator=(const EchoQueueObject&) = delete;

  void close() override { core_.close(); }
  [[nodiscard]] bool at_end() const override { return failed_ || core_.at_end(); }
  [[nodiscard]] pybind11::dict stats() const override;
  int traverse(visitproc visit, void* arg) const override;
  void clear() override;

  // For threads that fill the queue in an order of their own: waits for room. Raises Closed, also if paused. Each
  // reservation must be consumed by one of the next four functions.
  Reservation reserve();
  void fill(Reservation place, pybind11::object item) {
    commit(place, std::move(item), {});
    drop_if_stopped();
  }
  // Raises this exception in the consumer in the place of an item. That ends the iteration and stops the queue.
  void fill_error(Reservation place, const pybind11::object& error);
  // Leaves the place empty.
  void abort(Reservation place) { core_.abort(place); }
  // Ends an iteration here; `last`: no other one follows.
  void end_here(Reservation place, bool last);

 protected:
  void hold(const pybind11::object& item) override;
  [[nodiscard]] bool holds_item() const override { return static_cast<bool>(held_.item); }
  Outcome put_held(bool wait, std::uint64_t& put) override;
  Outcome mark_pass_end(Deadline deadline) override;
  Outcome try_emit(PyObject*& emission) override;
  Outcome wait(Deadline slice) override;
  [[nodiscard]] std::uint64_t needed() const override { return core_.needed(); }
  void begin_core(std::uint64_t epoch, std::uint64_t items) override;
  void stop_core() override { core_.stop(); }
  [[nodiscard]] bool stopped() const override { return core_.stopped(); }

 private:
  struct Item {
    PyObject* object = nullptr;  // strong
    PyObject* guards = nullptr;  // strong, or null
    bool is_error = false;
  };

  // A use taken off the queue.
  struct Emission {
    pybind11::object object;  // null: none
    pybind11::object guards;  // or null
    std::uint64_t source_index = 0;
    std::uint32_t ordinal = 0;
  };

  void commit(Reservation place, pybind11::object object, pybind11::object guards);
  Outcome wait_for_place(Reservation& place);
  Outcome emit_rarely(const Use& use, Item& item, PyObject*& emission);
  Outcome emit_error(Item& item);
  PyObject* emit_pending();
  PyObject* transformed(Emission emission);
  void drop_items();

  EchoQueue core_;
  std::vector<Item> items_;  // by slot; one thread at a time owns a slot
  SharedItem held_;          // the item that was read and is not put
  Emission pending_;         // the use whose transform failed
  pybind11::object transform_;
  pybind11::object prepare_;
  const bool has_transform_;
  const bool shared_;
  bool failed_ = false;  // true after an error was emitted; nothing follows
};

void register_echo_queue(pybind11::module_& module);

}  // namespace pyecho::bindings
