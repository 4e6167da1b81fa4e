// pyecho._core.ObjectStage: the native stage of batch echoing. Python objects pass by reference.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/ownership.hpp"
#include "bindings/stages/py_stage.hpp"
#include "core/stage/echo_queue.hpp"

namespace pyecho::bindings {

// -- Protects and watches items, because all uses of an item share one storage (sharing.cpp). --

struct SharedItem {
  pybind11::object item;    // the item with read-only views for its NumPy arrays; itself if it has none
  pybind11::object guards;  // for check_guards(), visible to the garbage collector; null: nothing to check
};

// Watches the versions of torch tensors, and the identity of the children of dicts, lists and described nodes. Runs
// Python code only for described nodes, and raises any exception of that code.
[[nodiscard]] SharedItem share_item(pybind11::handle item);

// Raises EchoMutated if the item has changed since. The caller must keep references to both, because user code may run.
void check_guards(pybind11::handle item, pybind11::handle guards);

using Counts = std::pair<std::uint64_t, std::uint64_t>;  // uses, and fresh items among them

// All members need the GIL and the stage's Section, see Stage.
class ObjectStage final : public PyStage<ObjectStage> {
 public:
  // `transform`: None, or called for every use with (item, source index, use); the consumer gets its result.
  // `shared`: items of the source are protected between their uses (share_item()).
  ObjectStage(const EchoConfig& config, pybind11::object transform, bool shared);

  // For threads that fill the queue in an order of their own: waits for room. Raises Closed, also if paused. Each
  // reservation must be consumed by one of the next four functions.
  Reservation reserve();
  // `of`: uses and fresh items in this item, for counts_of_taken().
  void fill(Reservation place, pybind11::object item, Counts of) {
    give_up_nest(item.ptr());
    commit(place, {.object = std::move(item), .of = of});
  }
  // Raises this exception in the consumer in the place of an item. That ends the iteration and stops the queue.
  void fill_error(Reservation place, const pybind11::object& error) {
    has_error_ = true;
    commit(place, {.object = checked_failure(error), .is_error = true});
  }
  // Raises this exception in the consumer, which finds nothing in the queue, between two items; returns once it has been
  // raised. Leaves the place empty. Raises Closed if stopped or paused first.
  void tell(Reservation place, const pybind11::object& error);
  // Leaves the place empty.
  void abort(Reservation place) { core_->input().abort(place); }
  // Ends an iteration here; `last`: no other one follows.
  void end_here(Reservation place, bool last);
  // Uses and fresh items in everything that the consumer has taken, as passed to fill().
  [[nodiscard]] Counts counts_of_taken() const { return taken_; }

  // -- For PyStage --

  [[nodiscard]] EchoQueue& core() const { return *core_; }
  [[nodiscard]] bool at_end() const { return failed_ || core_->at_end(); }
  [[nodiscard]] std::optional<bool> put_pass(const pybind11::object& /*native*/) const { return false; }
  [[nodiscard]] std::uint64_t feeding_ns() const { return 0; }
  void find_native_failure() const {}
  void hold(const pybind11::object& item);
  Outcome put_held(bool wait, std::size_t& row);
  // The fast path: a repeat without guards and transform takes a few nanoseconds.
  Outcome try_emit(PyObject*& emission) {
    if (pending_.object) [[unlikely]] {
      return emit_pending(emission);
    }
    Use use;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by try_next
    const Outcome outcome = core_->try_next(use);
    if (outcome != Outcome::kOk) [[unlikely]] {
      return emit_none(outcome);
    }
    Item& item = items_[use.slot];
    if (use.last || item.guards || !item.object || item.is_error || has_transform_) {
      return emit_rarely(use, item, emission);
    }
    emission = Py_NewRef(item.object.ptr());
    return Outcome::kOk;
  }
  Outcome wait(Deadline slice) { return core_->await_items(slice); }
  Replay begin_core(const PlanPosition& position);
  PlanPosition inspect(pybind11::dict& state, bool payload, std::uint64_t iterations, std::uint64_t batches);
  void make_room(std::size_t items);
  void refill(const pybind11::object& item, bool batched, const Indices& rows, const Indices& slots);
  int traverse(visitproc visit, void* arg) const;
  void drop_items();

 private:
  struct Item {
    pybind11::object object{};  // null: none
    pybind11::object guards{};  // or null
    bool is_error = false;
    Counts of{};
  };

  // A use taken off the queue.
  struct Emission {
    pybind11::object object;  // null: none
    pybind11::object guards;  // or null
    Use use{};
  };

  void commit(Reservation place, Item item);
  Outcome emit_pending(PyObject*& emission);
  Outcome emit_none(Outcome outcome);
  Outcome emit_rarely(const Use& use, Item& item, PyObject*& emission);
  PyObject* handed_out(Emission emission);

  const std::unique_ptr<EchoQueue> core_;
  std::vector<Item> items_;  // by slot; one thread at a time owns a slot
  Item held_;                // the item that was read and is not put
  Emission pending_;         // the use whose transform failed
  Counts taken_{};
  pybind11::object transform_;
  const bool has_transform_;
  const bool shared_;
  pybind11::object told_;   // an exception that the consumer has not had; null: none
  EventCount told_count_;   // advanced when it has
  bool has_error_ = false;  // fill_error() was called since the beginning
  bool failed_ = false;     // true after an error was emitted; nothing follows
};

}  // namespace pyecho::bindings
