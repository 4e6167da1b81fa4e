#include "bindings/stage.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/position.hpp"
#include "bindings/registration.hpp"
#include "core/plan/echo_factor.hpp"

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

// Reads a source: its passes, and the items of each pass. Needs the GIL. One thread at a time.
class Reader {
 public:
  // `passes`: an iterator of iterators, one for each pass. `clock` outlives the reader.
  Reader(py::object passes, py::object at_empty, SourceClock& clock)
      : passes_(std::move(passes)), at_empty_(std::move(at_empty)), clock_(clock) {
    clock_.begin();
  }

  enum class Read : unsigned char { kItem, kNative, kPassEnd, kEnd };
  // kItem: `item` is the next item. kNative: it is a whole pass, for Stage::put_pass(). kPassEnd: the pass is over, and
  // another one follows. kEnd: the source is over. Raises any exception of the source.
  Read next(py::object& item) {
    if (!items_ && !next_pass()) {
      return Read::kEnd;
    }
    if (native_ == Native::kDue) {
      native_ = Native::kDone;
      item = items_;
      return Read::kNative;
    }
    if (native_ == Native::kNo && advance(items_, item, true)) {
      empty_ = false;
      return Read::kItem;
    }
    items_ = py::object();
    if (std::exchange(empty_, true) && !at_empty_.is_none()) {
      return end_at_empty();
    }
    return next_pass() ? Read::kPassEnd : Read::kEnd;
  }

  // A native pass had items.
  void found_items() noexcept { empty_ = false; }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(passes_.ptr());
    Py_VISIT(items_.ptr());
    Py_VISIT(at_empty_.ptr());
    return 0;
  }

 private:
  enum class Native : unsigned char { kNo, kDue, kDone };

  [[nodiscard]] Read end_at_empty() const {
    if (PyExceptionInstance_Check(at_empty_.ptr()) != 0) {
      PyErr_SetObject(py::type::handle_of(at_empty_).ptr(), at_empty_.ptr());
      throw py::error_already_set();
    }
    return Read::kEnd;
  }

  bool next_pass() {
    const bool found = advance(passes_, items_, false);
    native_ = found && py::hasattr(items_, kFeed) ? Native::kDue : Native::kNo;
    return found;
  }

  bool advance(const py::object& iterator, py::object& next, bool item) {
    const Clock::time_point begin = Clock::now();
    next = py::reinterpret_steal<py::object>(call_python([&] { return PyIter_Next(iterator.ptr()); }));
    const Clock::time_point end = Clock::now();
    clock_.read(begin, end, item && next);
    if (trace::recording()) {
      trace::record(trace::Kind::kSource, trace::to_ns(begin), trace::to_ns(end), 0);
    }
    if (!next && PyErr_Occurred() != nullptr) {
      throw py::error_already_set();
    }
    return static_cast<bool>(next);
  }

  py::object passes_;
  py::object items_;  // null between passes
  const py::object at_empty_;
  Native native_ = Native::kNo;
  bool empty_ = false;  // this pass has had no item; of the first one, nobody asks
  SourceClock& clock_;
};

void Stage::read(const py::object& passes, bool by_consumer, const py::tuple& first, std::size_t skipped_rows,
                 const py::object& at_empty) {
  reader_ = std::make_shared<Reader>(passes, at_empty, source_clock_);
  for (const py::handle item : first) {
    read_.push_back(py::reinterpret_borrow<py::object>(item));
  }
  skipped_rows_ = skipped_rows;
  by_consumer_ = by_consumer;
  pass_ended_ = false;
}

// Puts the held item, or else reads an item or the end of a pass and puts that. Returns an outcome of put_held(), or kEnd
// at the end of the source, which closes the stage.
Outcome Stage::read_and_put(Reader& reader, bool wait, std::uint64_t& put) {
  if (read_.empty() && !pass_ended_) {
    py::object item;
    switch (reader.next(item)) {
      case Reader::Read::kItem:
        read_.push_back(std::move(item));
        break;
      case Reader::Read::kNative:
        if (put_pass(item)) {
          reader.found_items();
        }
        return Outcome::kOk;
      case Reader::Read::kPassEnd:
        pass_ended_ = true;
        break;
      case Reader::Read::kEnd:
        close();
        return Outcome::kEnd;
    }
  }
  if (!pass_ended_) {
    if (!holds_item()) {
      const py::object item = read_.front();  // kept until it is put: Ctrl-C may cut this short
      hold(prepared(item), skipped_rows_);
    }
    trace::Span span(trace::Kind::kPut);
    const Outcome outcome = put_held(wait, put);
    span.set_value(put);
    if (outcome == Outcome::kOk && !read_.empty()) {  // else another thread has stopped the stage
      const py::object dying = std::move(read_.front());
      read_.pop_front();
      skipped_rows_ = 0;
    }
    return outcome;
  }
  const Outcome outcome = wait ? wait_for_room(kNever, [this](Deadline slice) { return mark_pass_end(slice); })
                               : mark_pass_end(Deadline::min());
  pass_ended_ = outcome != Outcome::kOk;
  return outcome;
}

py::object Stage::prepared(const py::object& item) {
  return prepare_.is_none() ? item : call_python([&] { return prepare_(item); });
}

bool Stage::put_pass(const py::object& /*pass*/) {
  raise(errors().config_error, "a native source fills slots with examples, so it needs a batch_size");
}

void Stage::feed() {
  const std::shared_ptr<Reader> reader = reader_;
  try {
    Outcome outcome = Outcome::kOk;
    while (reader && outcome == Outcome::kOk && !stopped() && !paused()) {
      std::uint64_t put = 0;
      outcome = read_and_put(*reader, true, put);
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
    std::uint64_t missing = needed();
    while (missing > 0) {
      std::uint64_t put = 0;
      if (read_and_put(*reader, false, put) != Outcome::kOk || put == 0) {
        break;  // 0: the end of a pass, after which the plan may need no more items
      }
      missing -= std::min(missing, put);
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

py::object Stage::take_failure() {
  if (failure_.is_none()) {
    failure_ = take_native_failure();
  }
  return std::exchange(failure_, py::none());
}

void Stage::fail(py::object error) {
  error = checked_failure(error);
  const std::deque<py::object> dying = std::exchange(read_, {});
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
      if ((outcome == Outcome::kOk || outcome == Outcome::kEmpty) && !(may_pause && paused())) {
        continue;
      }
    }
    if (outcome == Outcome::kOk && emission != nullptr) {
      return deliver(emission);
    }
    if (outcome != Outcome::kEnd) {
      raise_for(may_pause && paused() ? Outcome::kClosed : outcome);
    }
    if (at_end() && failure_.is_none()) {
      failure_ = take_native_failure();
    }
    if (at_end() && !failure_.is_none()) {
      raise_object(std::exchange(failure_, py::none()));
    }
    delivered_ = dropped_ = 0;
    const bool passed_over = std::exchange(end_is_next_, false);
    iterations_ += passed_over ? 0 : 1;
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

void Stage::begin(std::uint64_t epoch, const py::object& extent, std::uint64_t iterations, std::uint64_t delivered) {
  const Extent native = extent_of(extent);
  leave_epoch();
  if (const Outcome outcome = begin_core(epoch, native); outcome != Outcome::kOk) {
    raise_for(outcome);
  }
  iterations_ = iterations;
  delivered_ = delivered;
  dropped_ = 0;
  end_is_next_ = false;
}

// Stops, and waits for a consumer in another thread to leave.
void Stage::leave_epoch() {
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

void Stage::raise_for(Outcome outcome) const { raise_outcome(outcome, name_); }

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
  for (const py::object& item : read_) {
    Py_VISIT(item.ptr());
  }
  Py_VISIT(prepare_.ptr());
  return reader_ ? reader_->traverse(visit, arg) : 0;
}

void Stage::clear() {
  reader_.reset();
  const std::deque<py::object> dying = std::exchange(read_, {});
  failure_ = py::none();
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
      .def("_begin", guarded(&Stage::begin), py::arg("epoch"), py::arg("extent"), py::arg("iterations") = 0,
           py::arg("delivered") = 0)
      .def("_state", guarded(&Stage::state), py::kw_only(), py::arg("payload"), py::arg("with_held"))
      .def("_resume", guarded(&Stage::resume), py::arg("flow"))
      .def("_refill", guarded(&Stage::refill), py::arg("item"), py::arg("batched"), py::arg("rows"), py::arg("slots"))
      .def("_take", guarded(&Stage::take), py::kw_only(), py::arg("wait") = true)
      .def("_retire", guarded(&Stage::retire), py::kw_only(), py::arg("completed"))
      .def_property_readonly("_delivered", guarded(&Stage::delivered))
      .def_property_readonly("_generation", guarded(&Stage::generation))
      .def("_take_failure", guarded(&Stage::take_failure))
      .def_property_readonly("_at_end", guarded(&Stage::at_end))
      .def_property_readonly("_own_uses", guarded(&Stage::own_uses))
      .def("_extend", guarded(&Stage::extend), py::arg("knots"))
      .def_property_readonly("_knots", guarded(&Stage::knots))
      .def_property_readonly("_arrived", guarded(&Stage::arrived))
      .def("_stats", guarded(&Stage::stats))
      .def("_log", guarded(&Stage::log))
      .def("__iter__", [](const py::object& self) { return new_iterator(self, py::none()); });
}

}  // namespace pyecho::bindings
