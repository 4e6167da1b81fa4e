#include "bindings/stages/queue.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "bindings/encoding.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

ObjectStage::ObjectStage(const EchoConfig& config, py::object transform, bool shared)
    : PyStage("EchoLoader"),
      core_(std::make_unique<EchoQueue>(config)),
      items_(core_->input().slots()),
      transform_(std::move(transform)),
      has_transform_(!transform_.is_none()),
      shared_(shared) {}

// ---------------------------------------------------------------- producers

void ObjectStage::commit(Reservation place, Item item) {
  items_[place.slot] = std::move(item);
  core_->input().commit(place);
  if (core_->input().stopped()) {
    drop_items();  // nothing else would release it
  }
}

void ObjectStage::hold(const py::object& item) {
  SharedItem held = shared_ ? share_item(item) : SharedItem{.item = item, .guards = {}};
  give_up_nest(held.item.ptr());
  give_up_nest(held.guards.ptr());
  held_ = {.object = std::move(held.item), .guards = std::move(held.guards)};
}

Outcome ObjectStage::put_held(bool wait, std::size_t& row) {
  Reservation place{};
  const Outcome outcome = reserve_slot(place, wait);
  if (outcome == Outcome::kOk) {
    commit(place, std::exchange(held_, {}));
    ++row;
  }
  return outcome;
}

Reservation ObjectStage::reserve() {
  Reservation place{};
  if (const Outcome outcome = reserve_slot(place, true); outcome != Outcome::kOk) {
    raise_for(outcome == Outcome::kTimeout || outcome == Outcome::kHalted ? Outcome::kClosed : outcome);
  }
  return place;
}

void ObjectStage::tell(Reservation place, const py::object& error) {
  told_ = checked_failure(error);
  const std::uint64_t seen = told_count_.read();
  core_->input().abort(place);  // wakes the consumer
  std::ignore = wait_for_room(kNever, [&](Deadline slice) {
    return told_count_.await(seen + 1, slice, WaitStrategy::sleep(), [this] { return stopped() || paused(); });
  });
  if (std::exchange(told_, {})) {
    raise_for(Outcome::kClosed);
  }
}

void ObjectStage::end_here(Reservation place, bool last) {
  if (last) {
    core_->input().abort(place);
    core_->input().close();
  } else {
    core_->input().end_pass(place);
  }
}

// ---------------------------------------------------------------- consumer

// Continues try_emit() where the queue gives no use.
Outcome ObjectStage::emit_none(Outcome outcome) {
  check_log(core_->view().diverged());
  if (told_ && outcome == Outcome::kEmpty) {
    told_count_.advance();
    raise_object(std::exchange(told_, {}));
  }
  return failed_ && outcome == Outcome::kClosed ? Outcome::kEnd : outcome;
}

Outcome ObjectStage::emit_pending(PyObject*& emission) {
  emission = handed_out(std::exchange(pending_, {}));
  return Outcome::kOk;
}

Outcome ObjectStage::emit_rarely(const Use& use, Item& item, PyObject*& emission) {
  if (!item.object) {
    return Outcome::kClosed;  // stop() came while this thread waited for the GIL
  }
  if (item.is_error) {
    const py::object error = item.object;
    stop();
    failed_ = true;
    raise_object(error);
  }
  Emission found{.object = item.object, .guards = item.guards, .use = use};
  if (use.last) {
    taken_ = {taken_.first + item.of.first, taken_.second + item.of.second};
    item = {};
    core_->release(use.slot);
  }
  emission = handed_out(std::move(found));
  return Outcome::kOk;
}

// Returns what the consumer gets. If that fails, other than by EchoMutated (Ctrl-C in the check), the use stays pending
// and is checked again the next time.
PyObject* ObjectStage::handed_out(Emission emission) {
  const auto keep = [&] {
    if (!stopped()) {  // after stop() nothing would release it
      pending_ = std::move(emission);
    }
  };
  try {
    if (emission.guards && emission.use.ordinal > 0) {
      check_guards(emission.object, emission.guards);
    }
    if (!has_transform_) {
      return emission.object.release().ptr();
    }
    return call_python([&] {
             return transform_(emission.object, emission.use.source_index,
                               static_cast<std::int32_t>(emission.use.ordinal));
           })
        .release()
        .ptr();
  } catch (const py::error_already_set& error) {
    if (!error.matches(errors().echo_mutated)) {
      keep();
    }
    throw;
  } catch (...) {
    keep();
    throw;
  }
}

// ---------------------------------------------------------------- saving and resuming

PlanPosition ObjectStage::inspect(py::dict& state, bool payload, std::uint64_t iterations, std::uint64_t batches) {
  if (has_error_) {
    raise(errors().echo_error,
          "augment, collate_fn or an upload has raised an exception that the consumer is about to "
          "get; no state can repeat that, so go on from an earlier one");
  }
  PlanPosition at = core_->position(iterations, batches);
  if (!payload) {
    return at;
  }
  std::vector<std::pair<std::uint64_t, py::object>> found;
  core_->each_unspent(
      at, [&](std::uint32_t slot, std::uint64_t number) { found.emplace_back(number, items_[slot].object); });
  if (pending_.object && pending_.use.last) {  // its slot was released, but nothing was planned since
    found.emplace_back(core_->number_of(pending_.use.slot, at), pending_.object);
  }
  std::ranges::sort(found, {}, [](const auto& item) { return item.first; });
  py::list items;
  for (auto& [number, item] : found) {
    items.append(std::move(item));
  }
  state["numbers"] = array_of<std::int64_t>(found.size(), [&](std::size_t i) { return found[i].first; });
  state["columns"] = std::vector<py::list>{std::move(items)};
  return at;
}

Replay ObjectStage::begin_core(const PlanPosition& position) {
  failed_ = has_error_ = false;
  return begin_at(position);
}

void ObjectStage::make_room(std::size_t items) {
  if (items > core_->input().slots()) {  // a loader makes its stage with room for them
    raise(errors().checkpoint_error, "the state holds more items than this stage");
  }
}

void ObjectStage::refill(const py::object& item, bool /*batched*/, const Indices& /*rows*/, const Indices& slots) {
  hold(prepared(item));
  for (const std::int64_t slot : std::span(slots.data(), static_cast<std::size_t>(slots.size()))) {
    items_.at(static_cast<std::size_t>(slot)) = {.object = held_.object, .guards = held_.guards};
  }
  held_ = {};
}

// ---------------------------------------------------------------- garbage collection and registration

int ObjectStage::traverse(visitproc visit, void* arg) const {
  for (const Item& item : items_) {
    Py_VISIT(item.object.ptr());
    Py_VISIT(item.guards.ptr());
  }
  Py_VISIT(held_.object.ptr());
  Py_VISIT(held_.guards.ptr());
  Py_VISIT(pending_.object.ptr());
  Py_VISIT(pending_.guards.ptr());
  Py_VISIT(told_.ptr());
  Py_VISIT(transform_.ptr());
  return 0;
}

void ObjectStage::drop_items() {
  for (Item& item : items_) {
    item = {};
  }
  const Item dying = std::exchange(held_, {});
  told_ = {};
  pending_ = {};
}

void register_object_stage(py::module_& module) {
  const py::class_<Reservation> place(module, "Place", "A place in the order of an ObjectStage.");
  py::class_<ObjectStage, Stage, std::shared_ptr<ObjectStage>> type(
      module, "ObjectStage", py::custom_type_setup(collect_cycles<ObjectStage>), "The native stage of batch echoing.");
  bind_stage(type);
  type.def(py::init([](const py::object& config, py::object transform, bool shared) {
             return std::make_shared<ObjectStage>(config_of(config), std::move(transform), shared);
           }),
           py::arg("config"), py::kw_only(), py::arg("transform") = py::none(), py::arg("shared") = false)
      .def("reserve", guarded<ObjectStage>(&ObjectStage::reserve))
      .def("fill", guarded<ObjectStage>(&ObjectStage::fill), py::arg("place"), py::arg("item"),
           py::arg("of") = Counts{})
      .def("fill_error", guarded<ObjectStage>(&ObjectStage::fill_error), py::arg("place"), py::arg("error"))
      .def("tell", guarded<ObjectStage>(&ObjectStage::tell), py::arg("place"), py::arg("error"))
      .def("abort", guarded<ObjectStage>(&ObjectStage::abort), py::arg("place"))
      .def("_counts_of_taken", guarded<ObjectStage>(&ObjectStage::counts_of_taken))
      .def("end_here", guarded<ObjectStage>(&ObjectStage::end_here), py::arg("place"), py::arg("last"));
}

}  // namespace pyecho::bindings
