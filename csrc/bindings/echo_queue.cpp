#include "bindings/echo_queue.hpp"

#include <utility>

#include "bindings/errors.hpp"
#include "bindings/garbage.hpp"
#include "bindings/sharing.hpp"
#include "bindings/use_iterator.hpp"
#include "bindings/waiting.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

EchoQueueObject::EchoQueueObject(const EchoQueueConfig& config, py::object transform)
    : core_(config), items_(core_.slots()), transform_(std::move(transform)) {}

void EchoQueueObject::put(const py::object& item, const py::object& guards) {
  Reservation reservation{};
  Outcome outcome = core_.try_reserve(reservation);
  if (outcome == Outcome::kFull) {
    outcome = wait_answering_signals(kNever, [&](Deadline slice) { return core_.reserve(reservation, slice); });
  }
  if (outcome != Outcome::kOk) {
    raise_outcome(outcome, "EchoLoader");
  }
  items_[reservation.slot] = {.object = py::object(item).release().ptr(),
                              .guards = guards.is_none() ? nullptr : py::object(guards).release().ptr()};
  core_.commit(reservation);
}

void EchoQueueObject::fail(py::object error) {
  error = checked_failure(error);
  if (failure_.is_none() && !core_.stopped()) {  // after stop() nobody would ever let go of it
    failure_ = std::move(error);
  }
  close();
}

void EchoQueueObject::stop() {
  core_.stop();
  clear();
}

PyObject* EchoQueueObject::next_reference() {
  if (pending_.object) {
    return transformed(std::exchange(pending_, Emission{}));
  }
  Use use{};
  Outcome outcome = core_.try_next(use);
  if (outcome == Outcome::kEmpty) {
    outcome = wait_answering_signals(kNever, [&](Deadline slice) { return core_.next(use, slice); });
  }
  if (outcome == Outcome::kEnd) {
    if (!failure_.is_none()) {
      raise_object(std::exchange(failure_, py::none()));
    }
    return nullptr;
  }
  if (outcome != Outcome::kOk) {
    raise_outcome(outcome, "EchoLoader");
  }
  Item& item = items_[use.slot];
  if (item.object == nullptr) {
    raise_outcome(Outcome::kClosed, "EchoLoader");  // stop() came while this thread waited for the GIL
  }
  auto object = py::reinterpret_borrow<py::object>(item.object);
  auto guards = py::reinterpret_borrow<py::object>(item.guards);
  if (use.last) {
    Py_CLEAR(item.object);
    Py_CLEAR(item.guards);
    core_.release(use.slot);
  }
  if (transform_.is_none()) {  // a repeat without it is a few nanoseconds
    if (guards && use.ordinal > 0) {
      check_guards(guards);
    }
    return object.release().ptr();
  }
  return transformed({.object = std::move(object),
                      .guards = std::move(guards),
                      .source_index = use.source_index,
                      .ordinal = use.ordinal});
}

// What the transform makes of a use. If it fails, the use stays pending.
PyObject* EchoQueueObject::transformed(Emission emission) {
  if (emission.guards && emission.ordinal > 0) {
    check_guards(emission.guards);
  }
  try {
    return transform_(emission.object, emission.source_index, emission.ordinal).release().ptr();
  } catch (const py::error_already_set&) {
    if (!core_.stopped()) {  // after stop() nobody would ever let go of it
      pending_ = std::move(emission);
    }
    throw;
  }
}

py::dict EchoQueueObject::stats() const {
  const EchoQueueStats stats = core_.stats();
  py::dict dict;
  dict["fresh"] = stats.fresh;
  dict["emitted"] = stats.emitted;
  dict["batches"] = stats.emitted;
  dict["bytes_gathered"] = 0;
  dict["consumer_wait_ns"] = stats.consumer_wait_ns;
  dict["downstream_ns"] = stats.downstream_ns;
  dict["resident"] = stats.resident;
  dict["outstanding_leases"] = 0;
  dict["host_allocations"] = 0;
  return dict;
}

void EchoQueueObject::drop_items() {
  for (Item& item : items_) {
    Py_CLEAR(item.object);
    Py_CLEAR(item.guards);
  }
}

int EchoQueueObject::traverse(visitproc visit, void* arg) const {
  for (const Item& item : items_) {
    Py_VISIT(item.object);
    Py_VISIT(item.guards);
  }
  Py_VISIT(pending_.object.ptr());
  Py_VISIT(pending_.guards.ptr());
  Py_VISIT(transform_.ptr());
  Py_VISIT(failure_.ptr());
  return 0;
}

void EchoQueueObject::clear() {
  drop_items();
  pending_ = Emission{};
  failure_ = py::none();
}

void register_echo_queue(py::module_& module) {
  py::class_<EchoQueueObject, std::shared_ptr<EchoQueueObject>>(module, "EchoQueue", collect_cycles<EchoQueueObject>(),
                                                                "The native stage of batch echoing.")
      .def(py::init([](std::uint32_t capacity, double factor, std::uint64_t seed, std::uint64_t epoch,
                       std::uint32_t prefetch, py::object transform) {
             return std::make_shared<EchoQueueObject>(
                 EchoQueueConfig{
                     .capacity = capacity, .factor = factor, .seed = seed, .epoch = epoch, .prefetch = prefetch},
                 std::move(transform));
           }),
           py::kw_only(), py::arg("capacity"), py::arg("factor"), py::arg("seed"), py::arg("epoch"),
           py::arg("prefetch"), py::arg("transform"))
      .def("put", &EchoQueueObject::put, py::arg("item"), py::arg("guards"))
      .def("close", &EchoQueueObject::close)
      .def("fail", &EchoQueueObject::fail, py::arg("error"))
      .def("stop", &EchoQueueObject::stop)
      .def("_stats", &EchoQueueObject::stats)
      .def("_iterate", &make_use_iterator, py::arg("owner"));
}

}  // namespace pyecho::bindings
