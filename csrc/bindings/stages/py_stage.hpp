// The common part of both stages of Python, over the native core of each: a source is put, the consumer waits, epochs
// begin and stop, and a state is saved.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/encoding.hpp"
#include "bindings/stages/stage.hpp"
#include "core/stage/slot_ring.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho::bindings {

// `Kind`, the class derived from this, has:
//   Core& core(): an EchoBuffer or EchoQueue
//   void hold(item): checks an item of the source, and keeps it for put_held()
//   Outcome put_held(wait, row): puts the held item from `row` on, or as many of its rows as fit, and advances `row` past
//     them; an item that is no batch has one. kOk: the item is no longer held. Without `wait` another outcome
//     if there is no room; kTimeout, kHalted if paused meanwhile; kClosed, kForked
//   Outcome try_emit(emission): takes the next emission: kOk with `emission` set; kEnd; kEmpty; others
//   Outcome wait(slice): waits until the result of try_emit() may have changed, without the GIL. kOk, kEmpty; kTimeout if
//     the slice has passed; or another result of try_emit()
//   PlanPosition inspect(state, payload, iterations, batches): adds the items to `state` if there is a `payload`, and
//     returns the input of the plan. The numbers: taken by the last of the consumers
//   void make_room(items): prepares resume() for so many items. Raises ConfigError if max_bytes has no room for them,
//     EchoError beside a producer. Changes nothing that others see
//   void refill(item, batched, rows, slots): fills slots with rows of an item of the source; of an example, with row 0.
//     `batched`: the item is a batch
//   int traverse(visit, arg), void drop_items(): for its own references
//   bool at_end(): true once the last iteration is over. From then on, next_reference() returns null
//   Replay begin_core(position): begin_at(), with what the kind has to do. Throws std::invalid_argument if there is no
//     such extent
//   std::optional<bool> put_pass(pass): has all items of a pass put by the pass itself. Returns whether there were any;
//     nothing if the pass is to go on later, because this stage is paused or stopped
//   uint64_t feeding_ns(): how long the native source of the running pass has worked
//   void find_native_failure(): takes over what a native producer told of in failure_, if that is None
template <class Kind>
class PyStage : public Stage {
 public:
  // -- Producers --

  // Reads and puts every item; waits for room. Returns when the source has ended or raised (the consumer gets the
  // exception), or when the stage is stopped or paused. One thread at a time.
  void feed();
  // Ends the input.
  void close() { native().input().close(); }
  // Same as close(), but the consumer receives `error` once everything before it has been emitted.
  void fail(pybind11::object error) {
    error = checked_failure(error);
    has_failed_ = true;
    const std::shared_ptr<Reader> dying = std::exchange(reader_, nullptr);
    if (failure_.is_none() && !stopped()) {  // after stop() nothing would release it
      failure_ = std::move(error);
    }
    close();
  }
  // Ends feed(), and soon also the waits of other threads that fill or take. Nothing is lost: another thread may
  // continue after set_paused(false).
  void set_paused(bool paused) {
    paused_.store_relaxed(paused);
    halt_core(paused);
  }
  // True if the stage is paused or stopped.
  [[nodiscard]] bool is_paused() const { return paused() || stopped(); }
  // Stops the stage and drops its items. The thread that reads has to leave the source.
  void stop() {
    native().stop();
    drop_all();
  }

  // -- Consumer --

  // Returns the next batch or item as a new reference, or null at the end of an iteration. Raises the exception passed
  // to fail(), Closed, and exceptions of the stage.
  PyObject* next_reference() {
    PyObject* emission = nullptr;
    const Outcome outcome = self().try_emit(emission);
    return outcome == Outcome::kOk ? deliver(emission) : next_reference(outcome, false);
  }
  // Same, for pyecho's own threads. Raises StopIteration at the end of an iteration, Closed if paused. Without `wait`
  // returns None if nothing is there.
  pybind11::object take(bool wait) {
    PyObject* emission = nullptr;
    const Outcome outcome = self().try_emit(emission);
    if (outcome == Outcome::kEmpty && !wait) {
      return pybind11::none();
    }
    emission = outcome == Outcome::kOk ? deliver(emission) : next_reference(outcome, true);
    if (emission == nullptr) {
      throw pybind11::stop_iteration();
    }
    return pybind11::reinterpret_steal<pybind11::object>(emission);
  }

  // -- Beginning, saving and resuming (pyecho/state/position.py). The consumer's thread, between two calls of next() --

  // Starts with iteration `epoch` and drops the rest of the last one. No producer may be inside. Waits for a consumer
  // in another thread to leave. Raises EchoError in a signal handler or destructor inside of next(). `at`: a position
  // (encoding.hpp), of which this reads the epoch, the extent, and what an earlier process has taken of these epochs
  // (iterations, delivered). Raises ConfigError if there is no such extent.
  void begin(const pybind11::object& at) {
    require_own_process();
    const auto iterations = option<std::uint64_t>(at, "iterations");
    const auto delivered = option<std::uint64_t>(at, "delivered");
    start({.epoch = option<std::uint64_t>(at, "epoch"), .extent = extent_of(at)}, delivered, errors().config_error);
    iterations_ = iterations_before_ = iterations;
    delivered_before_ = delivered;
    halt_core(false);
  }
  // Same as begin(), but continues at a position. `unspent`: numbers of the items to go on with, ascending, or None:
  // the source yields again all but those of the batches taken. The stage is paused; fill the slots with refill(), then
  // call set_paused(false). Returns the numbers of the items, ascending, and their slots. Raises CheckpointError, also
  // if these are not the items of the position. Call make_room() before.
  pybind11::tuple resume(const pybind11::object& at, const std::optional<Indices>& unspent) {
    require_own_process();
    const PlanPosition position = position_of(at, unspent.has_value());
    const auto delivered = option<std::uint64_t>(at, "delivered");
    paused_.store_relaxed(true);
    Replay replay = start(position, delivered, errors().checkpoint_error);
    return items_of(replay, unspent);
  }
  // Returns where the stage stands, as plain numbers. `payload`: and the items that the consumer has not had to their
  // last use. `with_held`: and `held`, the items that were read and are not put, and `held_row`, the next row of the
  // first of them; then no thread may be in feed(). `taken`: iterations and batches of the last of the consumers, if that
  // is another stage.
  pybind11::dict state(bool payload, bool with_held, const std::optional<std::array<std::uint64_t, 2>>& taken);

  // -- Any thread --

  [[nodiscard]] pybind11::dict stats() const;
  // Returns the decisions of an adaptive factor: {first epoch: array}.
  [[nodiscard]] pybind11::dict log() const { return log_dict(native().view().log()); }
  // Drops all references to objects, the source's too.
  void clear() {
    leave_source();
    drop_all();
  }
  int traverse_all(visitproc visit, void* arg) const {
    Py_VISIT(failure_.ptr());
    Py_VISIT(prepare_.ptr());
    const int stop = self().traverse(visit, arg);
    return stop == 0 && reader_ ? reader_->traverse(visit, arg) : stop;
  }

 protected:
  [[nodiscard]] bool stopped() const { return native().input().stopped(); }
  Replay begin_at(const PlanPosition& position) {
    return without_gil(true, [&] { return native().begin(position); });
  }
  // Waits for `attempt` (see wait_answering_signals) on the producers' side; while a state is taken, sleeps. kTimeout
  // or kHalted also if paused meanwhile.
  template <class Attempt>
  Outcome wait_for_room(Deadline deadline, const Attempt& attempt) {
    const trace::Span span(trace::Kind::kRoom);
    source_clock_.blocked();
    const auto patient = [&](Deadline slice) {
      const Outcome outcome = attempt(slice);
      if (outcome != Outcome::kHalted || paused()) {
        return outcome;
      }
      native().input().await_resumed(slice);
      return Outcome::kTimeout;
    };
    return wait_answering_signals(deadline, patient, [this] { return paused(); });
  }
  // Reserves a slot, and waits for one if `wait`. kTimeout or kHalted also if paused meanwhile.
  Outcome reserve_slot(Reservation& place, bool wait, Deadline deadline = kNever) {
    SlotRing& input = native().input();
    Outcome outcome = input.reserve(place, Deadline::min());
    if (wait && (outcome == Outcome::kTimeout || outcome == Outcome::kHalted)) {
      outcome = wait_for_room(deadline, [&](Deadline slice) { return input.reserve(place, slice); });
    }
    return outcome;
  }

 private:
  friend Kind;
  explicit PyStage(std::string name)
      : Stage(std::move(name), [](Stage& stage) { return static_cast<Kind&>(stage).next_reference(); }) {}

  [[nodiscard]] Kind& self() noexcept { return static_cast<Kind&>(*this); }
  [[nodiscard]] const Kind& self() const noexcept { return static_cast<const Kind&>(*this); }
  [[nodiscard]] auto& native() const { return self().core(); }

  Outcome put_next(Reader& reader, bool wait, std::size_t& put);
  void hold_next(const Reader& reader);
  Outcome mark_pass_end(bool wait);
  void pull(std::uint64_t missing);
  PyObject* next_reference(Outcome outcome, bool may_pause);
  bool meet_end();
  PyObject* deliver(PyObject* emission) noexcept {
    ++delivered_;
    next_end_ = End::kCounted;
    return emission;
  }

  void halt_core(bool halted) {
    without_gil(true, [&] { return native().set_halted(halted), true; });
  }
  void require_own_process() const {
    if (native().input().forked()) {
      raise_for(Outcome::kForked);
    }
  }
  void drop_all() {
    self().drop_items();
    failure_ = pybind11::none();
  }
  // Lets go of what another thread was about to put when the stage was stopped.
  void drop_if_stopped() {
    if (stopped()) {
      drop_all();
    }
  }
  void leave_epoch();
  Replay start(const PlanPosition& position, std::uint64_t delivered, PyObject* error);
};

// Binds what the stages share (stage.cpp).
template <class Kind>
void bind_stage(pybind11::class_<Kind, Stage, std::shared_ptr<Kind>>& type);

// Has the garbage collector see what a stage refers to.
template <class Kind>
void collect_cycles(PyHeapTypeObject* heap_type) {
  PyTypeObject* const type = &heap_type->ht_type;
  type->tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) -> int {
    Py_VISIT(Py_TYPE(self));
    const Kind* const stage = native_of<Kind>(self);
    return stage == nullptr ? 0 : stage->traverse_all(visit, arg);
  };
  type->tp_clear = [](PyObject* self) -> int {
    if (auto* const stage = native_of<Kind>(self); stage != nullptr) {
      stage->clear();
    }
    return 0;
  };
}

}  // namespace pyecho::bindings
