#include "bindings/stage.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/iterator.hpp"
#include "bindings/waiting.hpp"
#include "core/plan/echo_factor.hpp"

namespace py = pybind11;

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

void Stage::read(const py::object& passes, bool by_consumer) {
  reader_ = std::make_shared<Reader>(passes, source_ns_);
  by_consumer_ = by_consumer;
  pass_ended_ = false;
}

// Reads an item or the end of a pass, unless one is held already. At the end of the source, closes the stage and returns
// false.
bool Stage::read_one(Reader& reader) {
  if (holds_item() || pass_ended_) {
    return true;
  }
  py::object item;
  switch (reader.next(item)) {
    case Reader::Read::kItem:
      hold(item);
      return true;
    case Reader::Read::kPassEnd:
      pass_ended_ = true;
      return true;
    case Reader::Read::kEnd:
      break;
  }
  close();
  return false;
}

void Stage::feed() {
  const std::shared_ptr<Reader> reader = reader_;
  try {
    Outcome outcome = Outcome::kOk;
    while (reader && outcome == Outcome::kOk && !stopped() && !paused() && read_one(*reader)) {
      if (pass_ended_) {
        outcome = wait_answering_signals(
            kNever, [this](Deadline slice) { return mark_pass_end(slice); }, [this] { return paused(); });
        pass_ended_ = outcome != Outcome::kOk;
      } else {
        std::uint64_t put = 0;
        outcome = put_held(true, put);
      }
    }
  } catch (const py::error_already_set& error) {
    fail(caught(error));
  }
  drop_if_stopped();
}

// Drops an item that was read while another thread stopped the stage.
void Stage::drop_if_stopped() {
  if (stopped()) {
    clear();
  }
}

// Reads as many items as the consumer needs. An exception of the source is raised after everything read before it has
// been emitted. KeyboardInterrupt is raised at once, because it may hit the consumer's thread anywhere.
void Stage::pull() {
  const std::shared_ptr<Reader> reader = reader_;
  if (!reader) {
    return;  // another thread stopped the stage while try_emit() had given up the GIL
  }
  try {
    for (std::uint64_t missing = needed(); missing > 0 && read_one(*reader);) {
      std::uint64_t put = 0;
      if (pass_ended_) {
        pass_ended_ = mark_pass_end(Deadline::min()) != Outcome::kOk;
        return;  // the plan may need no more items now
      }
      if (put_held(false, put) != Outcome::kOk) {
        drop_if_stopped();
        return;
      }
      missing -= std::min(missing, put);
    }
  } catch (const py::error_already_set& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) {
      throw;
    }
    fail(caught(error));
  }
}

void Stage::fail(py::object error) {
  error = checked_failure(error);
  if (failure_.is_none() && !stopped()) {  // after stop() nothing would release it
    failure_ = std::move(error);
  }
  close();
}

void Stage::stop() {
  stop_core();
  reader_.reset();
  clear();
}

// ---------------------------------------------------------------- consumer

// Continues after try_emit() has returned `outcome`, which is not kOk.
PyObject* Stage::next_reference(Outcome outcome, bool may_pause) {
  PyObject* emission = nullptr;
  for (;; outcome = try_emit(emission)) {
    if (outcome == Outcome::kEmpty) {
      if (by_consumer_ && needed() > 0) {
        pull();
        if (PyErr_CheckSignals() != 0) {  // a source in C does not run signal handlers
          throw py::error_already_set();
        }
        continue;
      }
      outcome = wait_answering_signals(
          kNever, [this](Deadline slice) { return wait(slice); }, [&] { return may_pause && paused(); });
      if (outcome == Outcome::kOk || outcome == Outcome::kEmpty) {
        continue;
      }
    }
    if (outcome == Outcome::kOk) {
      return delivered(emission);
    }
    if (outcome != Outcome::kEnd) {
      raise_for(outcome == Outcome::kTimeout ? Outcome::kClosed : outcome);
    }
    if (at_end() && !failure_.is_none()) {
      raise_object(std::exchange(failure_, py::none()));
    }
    delivered_ = 0;
    if (!std::exchange(end_is_next_, false) || at_end()) {
      return nullptr;
    }
  }
}

py::object Stage::take() {
  PyObject* emission = nullptr;
  if (const Outcome outcome = try_emit(emission); outcome != Outcome::kOk) {
    emission = next_reference(outcome, true);
  }
  if (emission == nullptr) {
    throw py::stop_iteration();
  }
  return py::reinterpret_steal<py::object>(emission);
}

void Stage::begin(std::uint64_t epoch, std::optional<std::uint64_t> items) {
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
  begin_core(epoch, items.value_or(kUnknown));
  delivered_ = 0;
  end_is_next_ = false;
}

void Stage::raise_for(Outcome outcome) const { raise_outcome(outcome, name_); }

// ---------------------------------------------------------------- garbage collection and registration

int Stage::traverse(visitproc visit, void* arg) const {
  Py_VISIT(failure_.ptr());
  return reader_ ? reader_->traverse(visit, arg) : 0;
}

void Stage::clear() {
  reader_.reset();
  failure_ = py::none();
}

void register_stage(py::module_& module) {
  py::class_<Stage, std::shared_ptr<Stage>>(module, "Stage", "Common base of the native stages.")
      .def("close", &Stage::close,
           "close()\n\nEnd the input. The items in the stage are still emitted, then iteration ends. Idempotent.")
      .def("fail", &Stage::fail, py::arg("error"),
           "fail(error)\n\nSame as close(), but the consumer receives this exception after everything was emitted.")
      .def("stop", &Stage::stop,
           "stop()\n\nStop at once: threads end, every wait ends with Closed. Views stay valid. Idempotent.")
      .def("_read", &Stage::read, py::arg("passes"), py::kw_only(), py::arg("by_consumer"))
      .def("_feed", &Stage::feed)
      .def("_set_paused", &Stage::set_paused, py::arg("paused"))
      .def("_begin", &Stage::begin, py::arg("epoch"), py::arg("items"))
      .def("_take", &Stage::take)
      .def("_retire", &Stage::retire, py::kw_only(), py::arg("completed"))
      .def_property_readonly("_delivered", [](const Stage& self) { return self.delivered(); })
      .def_property_readonly("_generation", &Stage::generation)
      .def_property_readonly("_at_end", &Stage::at_end)
      .def("_stats", &Stage::stats)
      .def("__iter__", [](const py::object& self) { return new_iterator(self, py::none()); });
}

}  // namespace pyecho::bindings
