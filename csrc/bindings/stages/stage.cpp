#include "bindings/stages/stage.hpp"

#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/errors.hpp"
#include "bindings/registration.hpp"
#include "bindings/stages/reader.hpp"

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

// ---------------------------------------------------------------- producers

void Stage::read(const py::object& passes, bool by_consumer, std::deque<py::object> first, std::size_t skipped_rows,
                 const py::object& at_empty) {
  feed_ = std::make_shared<Reader>(passes, std::move(first), skipped_rows, at_empty, source_clock_);
  by_consumer_ = by_consumer;
  has_failed_ = false;
}

// Holds the item that is next. Names it in a SpecMismatch.
void Stage::hold_next(const Reader& feed) {
  const py::object item = prepared(feed.item());
  try {
    hold(item);
  } catch (py::error_already_set& error) {
    if (!error.matches(errors().spec_mismatch)) {
      throw;
    }
    raise(errors().spec_mismatch, py::str(error.value()).cast<std::string>() + " (item " +
                                      std::to_string(feed.count()) + " since the epoch began or was resumed)");
  }
}

// Puts what is next: an item, a native pass, or the end of a pass. Returns an outcome of put_held(), or kEnd at the end
// of the source, which closes the stage. `put`: rows of an item.
Outcome Stage::put_next(Reader& feed, bool wait, std::size_t& put) {
  Outcome outcome = Outcome::kEnd;
  switch (feed.next()) {
    case Reader::Read::kItem: {
      if (!feed.is_held()) {
        hold_next(feed);
        feed.set_held();
      }
      trace::Span span(trace::Kind::kPut);
      const std::size_t before = feed.row();
      outcome = put_held(wait, feed.row());
      put = feed.row() - before;
      span.set_value(put);
      break;
    }
    case Reader::Read::kNative:
      feed.put(put_pass(feed.pass()));
      return Outcome::kOk;
    case Reader::Read::kPassEnd: {
      const auto mark = [this](Deadline deadline) {
        Reservation place{};
        const Outcome reserved = core().reserve(place, deadline);
        if (reserved == Outcome::kOk) {
          core().end_pass(place);
        }
        return reserved;
      };
      outcome = mark(Deadline::min());
      if (wait && (outcome == Outcome::kTimeout || outcome == Outcome::kHalted)) {
        outcome = wait_for_room(kNever, mark);
      }
      break;
    }
    case Reader::Read::kEnd:
      close();
  }
  if (outcome == Outcome::kOk) {
    feed.done();
  }
  return outcome;
}

py::object Stage::prepared(const py::object& item) {
  return prepare_.is_none() ? item : call_python([&] { return prepare_(item); });
}

void Stage::feed() {
  const std::shared_ptr<Reader> feed = feed_;
  try {
    std::size_t put = 0;
    Outcome outcome = Outcome::kOk;
    while (feed && outcome == Outcome::kOk && !stopped() && !paused()) {
      outcome = put_next(*feed, true, put);
    }
  } catch (const py::error_already_set& error) {
    fail(caught(error));
  }
  drop_if_stopped();
}

// Reads as many items as the consumer needs. An exception of the source is raised after everything read before it has
// been emitted. KeyboardInterrupt is raised at once, because it may hit the consumer's thread anywhere.
void Stage::pull(std::uint64_t missing) {
  const std::shared_ptr<Reader> feed = feed_;
  if (!feed) {
    return;  // another thread stopped the stage while try_emit() had given up the GIL
  }
  try {
    while (missing > 0) {
      std::size_t put = 0;
      if (put_next(*feed, false, put) != Outcome::kOk || put == 0) {
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

void Stage::fail(py::object error) {
  error = checked_failure(error);
  has_failed_ = true;
  const std::shared_ptr<Reader> dying = std::exchange(feed_, nullptr);
  if (failure_.is_none() && !stopped()) {  // after stop() nothing would release it
    failure_ = std::move(error);
  }
  close();
}

// ---------------------------------------------------------------- consumer

// Continues after try_emit() has returned `outcome`, which is not kOk.
PyObject* Stage::next_reference(Outcome outcome, bool may_pause) {
  PyObject* emission = nullptr;
  for (;; outcome = try_emit(emission)) {
    if (outcome == Outcome::kEmpty) {
      if (const std::uint64_t missing = by_consumer_ ? core().needed() : 0; missing > 0) {
        pull(missing);
        throw_if(PyErr_CheckSignals() != 0);  // a source in C does not run signal handlers
        continue;
      }
      outcome = wait_answering_signals(
          kNever, [this](Deadline slice) { return wait(slice); }, [&] { return may_pause && paused(); });
      const bool again = outcome == Outcome::kOk || outcome == Outcome::kEmpty || outcome == Outcome::kExhausted;
      if (again && !(may_pause && paused())) {
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
    if (at_end()) {
      find_native_failure();
      if (!failure_.is_none()) {
        raise_object(std::exchange(failure_, py::none()));
      }
    }
    delivered_ = dropped_ = 0;
    const bool passed_over = std::exchange(end_is_next_, false);
    const bool again = std::exchange(ended_, at_end());
    iterations_ += passed_over || again ? 0 : 1;
    if (!passed_over || at_end()) {
      return nullptr;
    }
  }
}

py::object Stage::take(bool wait) {
  PyObject* emission = nullptr;
  const Outcome outcome = try_emit(emission);
  if (outcome == Outcome::kEmpty && !wait) {
    return py::none();
  }
  emission = outcome == Outcome::kOk ? deliver(emission) : next_reference(outcome, true);
  if (emission == nullptr) {
    throw py::stop_iteration();
  }
  return py::reinterpret_steal<py::object>(emission);
}

py::dict Stage::stats() const {
  const EchoStats stats = core().stats();
  const std::uint64_t native_ns = feeding_ns();
  const std::uint64_t slots = stats.batch_blocks > 0 ? 1 : 0;  // allocated where there are batches
  return py::dict(
      "read"_a = stats.read, "emitted"_a = stats.emitted, "fresh"_a = stats.fresh, "batches"_a = stats.batches,
      "bytes_gathered"_a = stats.bytes_gathered, "source_ns"_a = source_clock_.inside_ns() + native_ns,
      "upstream_ns"_a = source_clock_.upstream_ns() + native_ns, "consumer_wait_ns"_a = stats.consumer_wait_ns,
      "downstream_ns"_a = stats.downstream_ns, "resident"_a = stats.resident,
      "outstanding_leases"_a = stats.outstanding_leases, "host_allocations"_a = stats.batch_blocks + slots);
}

// ---------------------------------------------------------------- garbage collection and registration

namespace {

// The types of the stages inherit this.
void collect_cycles(PyHeapTypeObject* heap_type) {
  PyTypeObject* const type = &heap_type->ht_type;
  type->tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) -> int {
    Py_VISIT(Py_TYPE(self));
    const Stage* const stage = native_of<Stage>(self);
    return stage == nullptr ? 0 : stage->traverse(visit, arg);
  };
  type->tp_clear = [](PyObject* self) -> int {
    if (auto* const stage = native_of<Stage>(self); stage != nullptr) {
      stage->clear();
    }
    return 0;
  };
}

}  // namespace

int Stage::traverse(visitproc visit, void* arg) const {
  Py_VISIT(failure_.ptr());
  Py_VISIT(prepare_.ptr());
  return feed_ ? feed_->traverse(visit, arg) : 0;
}

void Stage::leave_source() { const std::shared_ptr<Reader> dying = std::exchange(feed_, nullptr); }

void Stage::drop_items() { failure_ = py::none(); }

void Stage::clear() {
  leave_source();
  drop_items();
}

void* Stage::operator new(std::size_t /*size*/) {
  throw py::type_error("__init__() of this object has not run; call super().__init__(...) before its methods");
}

void register_stage(py::module_& module) {
  py::class_<Stage, std::shared_ptr<Stage>>(module, "Stage", py::custom_type_setup(collect_cycles),
                                            "Common base of the native stages.")
      .def("close", guarded(&Stage::close),
           "close()\n\nEnd the input. The items in the stage are still emitted, then iteration ends. Idempotent.")
      .def("fail", guarded(&Stage::fail), py::arg("error"),
           "fail(error)\n\nSame as close(), but the consumer receives this exception after everything was emitted.")
      .def("stop", guarded(&Stage::stop),
           "stop()\n\nStop at once: threads end, every wait ends with Closed. Views stay valid. Idempotent.")
      .def("_read", guarded(&Stage::read), py::arg("passes"), py::kw_only(), py::arg("by_consumer"),
           py::arg("first") = py::tuple(), py::arg("skipped_rows") = 0, py::arg("at_empty") = py::none())
      .def("_set_prepare", guarded(&Stage::set_prepare), py::arg("prepare"))
      .def("_feed", guarded(&Stage::feed))
      .def("_set_paused", guarded(&Stage::set_paused), py::arg("paused"))
      .def("_leave_source", guarded(&Stage::leave_source))
      .def("_begin", guarded(&Stage::begin), py::arg("at"))
      .def("_state", guarded(&Stage::state), py::kw_only(), py::arg("payload"), py::arg("with_held"),
           py::arg("taken") = py::none())
      .def("_make_room", guarded(&Stage::make_room), py::arg("items"))
      .def("_resume", guarded(&Stage::resume), py::arg("at"), py::arg("unspent"))
      .def("_refill", guarded(&Stage::refill), py::arg("item"), py::arg("batched"), py::arg("rows"), py::arg("slots"))
      .def("_take", guarded(&Stage::take), py::kw_only(), py::arg("wait") = true)
      .def("_retire", guarded(&Stage::retire), py::kw_only(), py::arg("completed"))
      .def_property_readonly("_is_paused", guarded(&Stage::is_paused))
      .def_property_readonly("_delivered", guarded(&Stage::delivered))
      .def_property_readonly("_generation", guarded(&Stage::generation))
      .def_property_readonly("_at_end", guarded(&Stage::at_end))
      .def_property_readonly("_failed", guarded(&Stage::has_failed))
      .def("_stats", guarded(&Stage::stats))
      .def("_log", guarded(&Stage::log))
      .def("__iter__", [](const py::object& self) { return new_iterator(self, py::none()); });
}

}  // namespace pyecho::bindings
