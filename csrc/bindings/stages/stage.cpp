// Makes the common part of the stages for both of them, and binds it.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>

#include "bindings/encoding.hpp"
#include "bindings/registration.hpp"
#include "bindings/stages/buffer.hpp"
#include "bindings/stages/py_stage.hpp"
#include "bindings/stages/queue.hpp"
#include "core/trace/recorder.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace pyecho::bindings {
namespace {

// Returns the exception object, with its traceback.
py::object caught(const py::error_already_set& error) {
  if (error.trace()) {
    PyException_SetTraceback(error.value().ptr(), error.trace().ptr());
  }
  return error.value();
}

}  // namespace

void* Stage::operator new(std::size_t /*size*/) {
  throw py::type_error("__init__() of this object has not run; call super().__init__(...) before its methods");
}

// ---------------------------------------------------------------- producers

// Holds the item that is next. Names it in a SpecMismatch.
template <class Kind>
void PyStage<Kind>::hold_next(const Reader& reader) {
  const py::object item = prepared(reader.item());
  try {
    self().hold(item);
  } catch (py::error_already_set& error) {
    if (!error.matches(errors().spec_mismatch)) {
      throw;
    }
    raise(errors().spec_mismatch, py::str(error.value()).cast<std::string>() + " (item " +
                                      std::to_string(reader.count()) + " since the epoch began or was resumed)");
  }
}

template <class Kind>
Outcome PyStage<Kind>::mark_pass_end(bool wait) {
  Reservation place{};
  const Outcome outcome = reserve_slot(place, wait);
  if (outcome == Outcome::kOk) {
    native().input().end_pass(place);
  }
  return outcome;
}

// Puts what is next: an item, a native pass, or the end of a pass. Returns an outcome of put_held(), or kEnd at the end
// of the source, which closes the stage. `put`: rows of an item.
template <class Kind>
Outcome PyStage<Kind>::put_next(Reader& reader, bool wait, std::size_t& put) {
  Outcome outcome = Outcome::kEnd;
  switch (reader.next()) {
    case Reader::Next::kItem: {
      if (!reader.is_held()) {
        hold_next(reader);
        reader.is_held() = true;
      }
      trace::Span span(trace::Kind::kPut);
      const std::size_t before = reader.row();
      outcome = self().put_held(wait, reader.row());
      put = reader.row() - before;
      span.set_value(put);
      break;
    }
    case Reader::Next::kNative:
      reader.put(self().put_pass(reader.pass()));
      return Outcome::kOk;
    case Reader::Next::kPassEnd:
      outcome = mark_pass_end(wait);
      break;
    case Reader::Next::kEnd:
      close();
  }
  if (outcome == Outcome::kOk) {
    reader.done();
  }
  return outcome;
}

// Reads as many items as the consumer needs. An exception of the source is raised after everything read before it has
// been emitted. KeyboardInterrupt is raised at once, because it may hit the consumer's thread anywhere.
template <class Kind>
void PyStage<Kind>::pull(std::uint64_t missing) {
  const std::shared_ptr<Reader> reader = reader_;
  if (!reader) {
    return;  // another thread stopped the stage while try_emit() had given up the GIL
  }
  try {
    while (missing > 0) {
      std::size_t put = 0;
      if (put_next(*reader, false, put) != Outcome::kOk || put == 0) {
        break;  // 0: the end of a pass, after which the plan may need no more items
      }
      missing -= std::min<std::uint64_t>(missing, put);
    }
    source_clock_.blocked();
    drop_if_stopped();
  } catch (const py::error_already_set& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) {
      throw;
    }
    fail(caught(error));
  }
}

template <class Kind>
void PyStage<Kind>::feed() {
  const std::shared_ptr<Reader> reader = reader_;
  try {
    std::size_t put = 0;
    Outcome outcome = Outcome::kOk;
    while (reader && outcome == Outcome::kOk && !is_paused()) {
      outcome = put_next(*reader, true, put);
    }
  } catch (const py::error_already_set& error) {
    fail(caught(error));
  }
  drop_if_stopped();
}

// ---------------------------------------------------------------- consumer

// Continues after try_emit() has returned `outcome`, which is not kOk.
template <class Kind>
PyObject* PyStage<Kind>::next_reference(Outcome outcome, bool may_pause) {
  PyObject* emission = nullptr;
  for (;; outcome = self().try_emit(emission)) {
    if (outcome == Outcome::kEmpty) {
      if (const std::uint64_t missing = by_consumer_ ? native().needed() : 0; missing > 0) {
        pull(missing);
        throw_if(PyErr_CheckSignals() != 0);  // a source in C does not run signal handlers
        continue;
      }
      const auto leaves = [&] { return may_pause && paused(); };
      outcome = wait_answering_signals(kNever, [this](Deadline slice) { return self().wait(slice); }, leaves);
      const bool again = outcome == Outcome::kOk || outcome == Outcome::kEmpty || outcome == Outcome::kExhausted;
      if (again && !leaves()) {
        throw_if(PyErr_CheckSignals() != 0);  // now, while what was acquired is kept: after the return it would be lost
        continue;
      }
    }
    if (outcome == Outcome::kOk && emission != nullptr) {
      return deliver(emission);
    }
    if (outcome != Outcome::kEnd) {
      raise_for(may_pause && paused() ? Outcome::kClosed : outcome);
    }
    if (meet_end()) {
      return nullptr;
    }
  }
}

// Returns true if the iteration ends. Raises the exception of the source at the last end.
template <class Kind>
bool PyStage<Kind>::meet_end() {
  const bool is_last = self().at_end();
  if (is_last) {
    self().find_native_failure();
    if (!failure_.is_none()) {
      raise_object(std::exchange(failure_, py::none()));
    }
  }
  delivered_ = dropped_ = 0;
  iterations_ += next_end_ == End::kCounted ? 1 : 0;
  const bool passed_over = next_end_ == End::kPassedOver;
  next_end_ = is_last ? End::kMetAgain : End::kCounted;
  return is_last || !passed_over;
}

template <class Kind>
py::dict PyStage<Kind>::stats() const {
  const EchoStats stats = native().stats();
  const std::uint64_t native_ns = self().feeding_ns();
  const std::uint64_t slots = stats.batch_blocks > 0 ? 1 : 0;  // allocated where there are batches
  return py::dict(
      "read"_a = stats.read, "emitted"_a = stats.emitted, "fresh"_a = stats.fresh, "batches"_a = stats.batches,
      "bytes_gathered"_a = stats.bytes_gathered, "source_ns"_a = source_clock_.inside_ns() + native_ns,
      "upstream_ns"_a = source_clock_.upstream_ns() + native_ns, "consumer_wait_ns"_a = stats.consumer_wait_ns,
      "downstream_ns"_a = stats.downstream_ns, "resident"_a = stats.resident,
      "outstanding_leases"_a = stats.outstanding_leases, "host_allocations"_a = stats.batch_blocks + slots);
}

// ---------------------------------------------------------------- beginning and saving

// Stops, and waits for a consumer in another thread to leave.
template <class Kind>
void PyStage<Kind>::leave_epoch() {
  if (consumer_ == std::this_thread::get_id()) {
    raise(errors().echo_error,
          "this thread is inside next() of the same loader, perhaps in a signal handler; begin the next iteration once "
          "that call has returned");
  }
  stop();
  if (consumer_ != std::thread::id()) {  // it is leaving
    const auto sleep = [](Deadline slice) {
      std::this_thread::sleep_until(slice);
      return Outcome::kTimeout;
    };
    static_cast<void>(wait_answering_signals(kNever, sleep, [this] { return consumer_ == std::thread::id(); }));
  }
}

// Begins at a position. `error`: the type of the exception if there is none such.
template <class Kind>
Replay PyStage<Kind>::start(const PlanPosition& position, std::uint64_t delivered, PyObject* error) {
  leave_epoch();
  Replay replay = naming(error, [&] { return self().begin_core(position); });
  run_to_end(replay);
  native().resume(replay);
  iterations_ = position.iterations;
  iterations_before_ = delivered_before_ = 0;
  delivered_ = delivered;
  dropped_ = replay.batches_drawn() - std::min(delivered, replay.batches_drawn());
  next_end_ = self().at_end() ? End::kMetAgain : End::kCounted;
  return replay;
}

template <class Kind>
py::dict PyStage<Kind>::state(bool payload, bool with_held, const std::optional<std::array<std::uint64_t, 2>>& taken) {
  require_own_process();
  if (consumer_ != std::thread::id()) {
    raise(errors().echo_error,
          "a state is taken between two batches; a thread is inside next(), perhaps this one, in a "
          "signal handler: note the wish there, and take the state in the loop");
  }
  self().find_native_failure();
  if (!failure_.is_none()) {
    raise_from(failure_, errors().echo_error,
               "the source has raised an exception that the consumer is about to get; no state can "
               "repeat that, so go on from an earlier one");
  }
  if (stopped()) {
    raise_for(Outcome::kClosed);
  }
  const OneConsumer consumer(*this);  // keeps other threads out
  const std::uint64_t batches = delivered_ + dropped_;
  py::dict state("iterations"_a = iterations_, "delivered"_a = delivered_, "batches"_a = batches);
  halt_core(true);
  try {
    const std::uint64_t before = iterations_ == iterations_before_ ? delivered_before_ : 0;
    const auto [own_iterations, own_batches] =
        taken.value_or(std::array{iterations_ - iterations_before_, batches - before});
    add_input(state, self().inspect(state, payload, own_iterations, own_batches));
    if (with_held && reader_ && reader_->at_pass_end()) {
      state["passes"].cast<py::list>().append(std::array{py::int_(1), py::int_(state["open_items"])});
      state["open_items"] = 0;
    }
    if (with_held) {
      state["held"] = reader_ ? py::cast(reader_->items()) : py::list();
      state["held_row"] = reader_ ? reader_->row() : 0;
    }
  } catch (...) {
    halt_core(paused());
    throw;
  }
  halt_core(paused());
  return state;
}

// ---------------------------------------------------------------- registration

template <class Kind>
void bind_stage(py::class_<Kind, Stage, std::shared_ptr<Kind>>& type) {
  type.def("close", guarded<Kind>(&Kind::close),
           "close()\n\nEnd the input. The items in the stage are still emitted, then iteration ends. Idempotent.")
      .def("fail", guarded<Kind>(&Kind::fail), py::arg("error"),
           "fail(error)\n\nSame as close(), but the consumer receives this exception after everything was emitted.")
      .def("stop", guarded<Kind>(&Kind::stop),
           "stop()\n\nStop at once: threads end, every wait ends with Closed. Views stay valid. Idempotent.")
      .def("_read", guarded<Kind>(&Kind::read), py::arg("passes"), py::kw_only(), py::arg("by_consumer"),
           py::arg("first") = py::tuple(), py::arg("skipped_rows") = 0, py::arg("at_empty") = py::none())
      .def("_set_prepare", guarded<Kind>(&Kind::set_prepare), py::arg("prepare"))
      .def("_feed", guarded<Kind>(&Kind::feed))
      .def("_set_paused", guarded<Kind>(&Kind::set_paused), py::arg("paused"))
      .def("_leave_source", guarded<Kind>(&Kind::leave_source))
      .def("_begin", guarded<Kind>(&Kind::begin), py::arg("at"))
      .def("_state", guarded<Kind>(&Kind::state), py::kw_only(), py::arg("payload"), py::arg("with_held"),
           py::arg("taken") = py::none())
      .def("_make_room", guarded<Kind>(&Kind::make_room), py::arg("items"))
      .def("_resume", guarded<Kind>(&Kind::resume), py::arg("at"), py::arg("unspent"))
      .def("_refill", guarded<Kind>(&Kind::refill), py::arg("item"), py::arg("batched"), py::arg("rows"),
           py::arg("slots"))
      .def("_take", guarded<Kind>(&Kind::take), py::kw_only(), py::arg("wait") = true)
      .def("_retire", guarded<Kind>(&Kind::retire), py::kw_only(), py::arg("completed"))
      .def_property_readonly("_is_paused", guarded<Kind>(&Kind::is_paused))
      .def_property_readonly("_delivered", guarded<Kind>(&Kind::delivered))
      .def_property_readonly("_generation", guarded<Kind>(&Kind::generation))
      .def_property_readonly("_at_end", guarded<Kind>(&Kind::at_end))
      .def_property_readonly("_failed", guarded<Kind>(&Kind::has_failed))
      .def("_stats", guarded<Kind>(&Kind::stats))
      .def("_log", guarded<Kind>(&Kind::log))
      .def("__iter__", [](const py::object& self) { return new_iterator(self, py::none()); });
}

template class PyStage<ExampleStage>;
template class PyStage<ObjectStage>;
template void bind_stage(py::class_<ExampleStage, Stage, std::shared_ptr<ExampleStage>>& type);
template void bind_stage(py::class_<ObjectStage, Stage, std::shared_ptr<ObjectStage>>& type);

void register_stage() { const py::class_<Stage, std::shared_ptr<Stage>> base(py::handle(), "Stage"); }

}  // namespace pyecho::bindings
