#include "bindings/echo_queue.hpp"

#include <utility>

#include "bindings/config.hpp"
#include "bindings/errors.hpp"
#include "bindings/garbage.hpp"
#include "bindings/sharing.hpp"
#include "bindings/waiting.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

EchoQueueObject::EchoQueueObject(const EchoQueueConfig& config, py::object transform, py::object prepare, bool shared)
    : Stage("EchoLoader"),
      core_(config),
      items_(core_.slots()),
      transform_(std::move(transform)),
      prepare_(std::move(prepare)),
      has_transform_(!transform_.is_none()),
      shared_(shared) {}

// ---------------------------------------------------------------- producers

void EchoQueueObject::commit(Reservation place, py::object object, py::object guards) {
  items_[place.slot] = {.object = object.release().ptr(), .guards = guards.release().ptr()};
  core_.commit(place);
}

void EchoQueueObject::hold(const py::object& item) {
  SharedItem held{.item = prepare_.is_none() ? item : call_python([&] { return prepare_(item); }), .guards = {}};
  held_ = shared_ ? share_item(held.item) : std::move(held);
}

Outcome EchoQueueObject::put_held(bool wait, std::uint64_t& put) {
  Reservation place{};
  Outcome outcome = core_.try_reserve(place);
  if (outcome == Outcome::kFull && wait) {
    outcome = wait_for_place(place);
  }
  if (outcome == Outcome::kOk) {
    SharedItem held = std::exchange(held_, {});
    commit(place, std::move(held.item), std::move(held.guards));
    ++put;
  }
  return outcome;
}

Outcome EchoQueueObject::mark_pass_end(Deadline deadline) {
  Reservation place{};
  const Outcome outcome = core_.reserve(place, deadline);
  if (outcome == Outcome::kOk) {
    core_.end_pass(place);
  }
  return outcome;
}

Outcome EchoQueueObject::wait_for_place(Reservation& place) {
  return wait_answering_signals(
      kNever, [&](Deadline slice) { return core_.reserve(place, slice); }, [this] { return paused(); });
}

Reservation EchoQueueObject::reserve() {
  Reservation place{};
  if (const Outcome outcome = wait_for_place(place); outcome != Outcome::kOk) {
    raise_for(outcome == Outcome::kTimeout ? Outcome::kClosed : outcome);
  }
  return place;
}

void EchoQueueObject::fill_error(Reservation place, const py::object& error) {
  items_[place.slot] = {.object = checked_failure(error).release().ptr(), .guards = nullptr, .is_error = true};
  core_.commit(place);
  drop_if_stopped();
}

void EchoQueueObject::end_here(Reservation place, bool last) {
  if (last) {
    core_.abort(place);
    core_.close();
  } else {
    core_.end_pass(place);
  }
}

// ---------------------------------------------------------------- consumer

// The fast path: a repeat without guards and transform takes a few nanoseconds. emit_rarely() handles everything else.
Outcome EchoQueueObject::try_emit(PyObject*& emission) {
  if (pending_.object) [[unlikely]] {
    emission = emit_pending();
    return Outcome::kOk;
  }
  Use use;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by try_next
  const Outcome outcome = core_.try_next(use);
  if (outcome != Outcome::kOk) [[unlikely]] {
    return failed_ && outcome == Outcome::kClosed ? Outcome::kEnd : outcome;
  }
  Item& item = items_[use.slot];
  if (use.last || item.guards != nullptr || item.object == nullptr || item.is_error || has_transform_) {
    return emit_rarely(use, item, emission);
  }
  emission = Py_NewRef(item.object);
  return Outcome::kOk;
}

Outcome EchoQueueObject::emit_rarely(const Use& use, Item& item, PyObject*& emission) {
  if (item.object == nullptr || item.is_error) {
    return emit_error(item);
  }
  Emission found{.object = py::reinterpret_borrow<py::object>(item.object),
                 .guards = py::reinterpret_borrow<py::object>(item.guards),
                 .source_index = use.source_index,
                 .ordinal = use.ordinal};
  if (use.last) {
    Py_CLEAR(item.object);
    Py_CLEAR(item.guards);
    core_.release(use.slot);
  }
  if (found.guards && found.ordinal > 0) {
    check_guards(found.guards);
  }
  emission = has_transform_ ? transformed(std::move(found)) : found.object.release().ptr();
  return Outcome::kOk;
}

PyObject* EchoQueueObject::emit_pending() {
  Emission pending = std::exchange(pending_, Emission{});
  if (pending.guards && pending.ordinal > 0) {
    check_guards(pending.guards);
  }
  return transformed(std::move(pending));
}

// Raises the exception in the place of the item. Returns kClosed if there is none, because stop() came while this thread
// waited for the GIL.
Outcome EchoQueueObject::emit_error(Item& item) {
  if (item.object == nullptr) {
    return Outcome::kClosed;
  }
  const auto error = py::reinterpret_borrow<py::object>(item.object);
  stop();
  failed_ = true;
  raise_object(error);
}

// Returns the result of the transform. If the transform fails, the use stays pending and is checked again the next time.
PyObject* EchoQueueObject::transformed(Emission emission) {
  try {
    return call_python([&] { return transform_(emission.object, emission.source_index, emission.ordinal); })
        .release()
        .ptr();
  } catch (const py::error_already_set&) {
    if (!core_.stopped()) {  // after stop() nothing would release it
      pending_ = std::move(emission);
    }
    throw;
  }
}

Outcome EchoQueueObject::wait(Deadline slice) { return core_.await_items(slice); }

void EchoQueueObject::begin_core(std::uint64_t epoch, std::uint64_t items) {
  if (const Outcome outcome = core_.begin(epoch, items); outcome != Outcome::kOk) {
    raise_for(outcome);
  }
  failed_ = false;
}

py::dict EchoQueueObject::stats() const {
  const EchoQueueStats stats = core_.stats();
  py::dict dict;
  dict["fresh"] = stats.fresh;
  dict["emitted"] = stats.emitted;
  dict["batches"] = stats.emitted;
  dict["bytes_gathered"] = 0;
  dict["source_ns"] = source_ns();
  dict["consumer_wait_ns"] = stats.consumer_wait_ns;
  dict["downstream_ns"] = stats.downstream_ns;
  dict["resident"] = stats.resident;
  dict["outstanding_leases"] = 0;
  dict["host_allocations"] = 0;
  return dict;
}

// ---------------------------------------------------------------- garbage collection and registration

void EchoQueueObject::drop_items() {
  for (Item& item : items_) {
    Py_CLEAR(item.object);
    Py_CLEAR(item.guards);
    item.is_error = false;
  }
}

int EchoQueueObject::traverse(visitproc visit, void* arg) const {
  for (const Item& item : items_) {
    Py_VISIT(item.object);
    Py_VISIT(item.guards);
  }
  Py_VISIT(held_.item.ptr());
  Py_VISIT(held_.guards.ptr());
  Py_VISIT(pending_.object.ptr());
  Py_VISIT(pending_.guards.ptr());
  Py_VISIT(transform_.ptr());
  Py_VISIT(prepare_.ptr());
  return Stage::traverse(visit, arg);
}

void EchoQueueObject::clear() {
  drop_items();
  const SharedItem dying = std::exchange(held_, {});
  pending_ = Emission{};
  Stage::clear();
}

void register_echo_queue(py::module_& module) {
  const py::class_<Reservation> place(module, "Place", "A place in the order of an EchoQueue.");
  py::class_<EchoQueueObject, Stage, std::shared_ptr<EchoQueueObject>>(
      module, "EchoQueue", collect_cycles<EchoQueueObject>(), "The native stage of batch echoing.")
      .def(py::init([](const py::object& config, py::object transform, py::object prepare, bool shared) {
             return std::make_shared<EchoQueueObject>(queue_config(config), std::move(transform), std::move(prepare),
                                                      shared);
           }),
           py::arg("config"), py::kw_only(), py::arg("transform") = py::none(), py::arg("prepare") = py::none(),
           py::arg("shared") = false)
      .def("reserve", &EchoQueueObject::reserve)
      .def("fill", &EchoQueueObject::fill, py::arg("place"), py::arg("item"))
      .def("fill_error", &EchoQueueObject::fill_error, py::arg("place"), py::arg("error"))
      .def("abort", &EchoQueueObject::abort, py::arg("place"))
      .def("end_here", &EchoQueueObject::end_here, py::arg("place"), py::arg("last"));
}

}  // namespace pyecho::bindings
