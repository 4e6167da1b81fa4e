// pyecho._core.Stage: the common base of the native stages. Handles reading a source, epochs, errors and the end.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "bindings/either_core.hpp"
#include "bindings/encoding.hpp"
#include "bindings/gil.hpp"
#include "bindings/section.hpp"
#include "core/stage/clocks.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho::bindings {

class Feed;

// All members need the GIL and the stage's Section (section.hpp); waits, long copies and calls into Python release
// both.
class Stage {
 public:
  // `name` names the object in messages ("EchoBuffer").
  explicit Stage(std::string name) : name_(std::move(name)) {}
  // Raises TypeError. pybind11 calls it for methods of a Python object whose __init__() has not run yet, and would take
  // the memory for a stage. Stages are made by std::make_shared, which does not.
  static void* operator new(std::size_t size);  // NOLINT(misc-new-delete-overloads)
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Locked by a Section of this stage.
  [[nodiscard]] const SectionLock& lock() const noexcept { return lock_; }

  // -- Producers --

  // Sets the source: `passes` is an iterator of iterators, one for each pass. `by_consumer`: the consumer reads the
  // source when it needs items, and there is no producer. Otherwise a thread must call feed(). `first`: items that were
  // read ahead of `passes`; so many rows of the first one are skipped. `at_empty`: None, or a later pass without items
  // ends the source; it fails with `at_empty` if that is an exception.
  void read(const pybind11::object& passes, bool by_consumer, std::deque<pybind11::object> first,
            std::size_t skipped_rows, const pybind11::object& at_empty);
  // Has the items of the source put as what `prepare`, a callable, returns of them.
  void set_prepare(pybind11::object prepare) { prepare_ = std::move(prepare); }
  // Reads and puts every item; waits for room. Returns when the source has ended or raised (the consumer gets the
  // exception), or when the stage is stopped or paused. One thread at a time.
  void feed();
  // Ends the input.
  void close() { core().close(); }
  // Same as close(), but the consumer receives `error` once everything before it has been emitted.
  void fail(pybind11::object error);
  // Ends feed(), and soon also the waits of other threads that fill or take. Nothing is lost: another thread may
  // continue after set_paused(false).
  void set_paused(bool paused);
  // Lets go of the source; a thread in feed(), which should be paused, does so there. The items stay.
  void leave_source();
  // True if the stage is paused or stopped.
  [[nodiscard]] bool is_paused() const { return paused() || stopped(); }
  // Stops the stage and drops its items. The thread that reads has to leave the source, see leave_source().
  void stop();

  // -- Consumer --

  // Returns the next batch or item as a new reference, or null at the end of an iteration. Raises the exception passed
  // to fail(), Closed, and exceptions of the stage.
  PyObject* next_reference() {
    PyObject* emission = nullptr;
    const Outcome outcome = try_emit(emission);
    return outcome == Outcome::kOk ? deliver(emission) : next_reference(outcome, false);
  }
  // Same as next_reference(), for pyecho's own threads. Raises StopIteration at the end of an iteration, Closed if
  // paused. Without `wait` returns None if nothing is there.
  pybind11::object take(bool wait);
  // True once the last iteration is over. From then on, next_reference() returns null.
  [[nodiscard]] virtual bool at_end() const { return core().at_end(); }
  // Starts with iteration `epoch` and drops the rest of the last one. No producer may be inside. Waits for a consumer
  // in another thread to leave. Raises EchoError in a signal handler or destructor inside of next(). `at`: a position
  // (encoding.hpp), of which this reads the epoch, the extent, and what an earlier process has taken of these epochs
  // (iterations, delivered). Raises ConfigError if there is no such extent.
  void begin(const pybind11::object& at);

  // -- Saving and resuming (pyecho/state/position.py). The consumer's thread, between two calls of next(). --

  // Returns where the stage stands, as plain numbers. `payload`: and the items that the consumer has not had to their
  // last use. `with_held`: and `held`, the items that were read and are not put, and `held_row`, the next row of the
  // first of them; then no thread may be in feed(). `taken`: iterations and batches of the last of the consumers, if that
  // is another stage.
  [[nodiscard]] pybind11::dict state(bool payload, bool with_held,
                                     const std::optional<std::array<std::uint64_t, 2>>& taken);
  // Same as begin(), but continues at a position. `unspent`: numbers of the items to go on with, ascending, or None:
  // the source yields again all but those of the batches taken. The stage is paused; fill the slots with refill(), then
  // call set_paused(false). Returns the numbers of the items, ascending, and their slots. Raises CheckpointError, also
  // if these are not the items of the position. Call make_room() before.
  pybind11::tuple resume(const pybind11::object& at, const std::optional<Indices>& unspent);
  // Prepares resume() for so many items. Raises ConfigError if max_bytes has no room for them, EchoError beside a
  // producer. Changes nothing that others see.
  virtual void make_room(std::size_t items) = 0;
  // Fills slots with rows of an item of the source; of an example, with row 0. `batched`: the item is a batch.
  virtual void refill(const pybind11::object& item, bool batched, const Indices& rows, const Indices& slots) = 0;

  // The thread inside next_reference(); none: std::thread::id(). See iterator.cpp.
  [[nodiscard]] std::thread::id& consumer() noexcept { return consumer_; }
  // Retires all iterators that began before. `completed`: the iteration has nothing left but its end, which
  // the next one passes over, and its iterators end rather than raise.
  void retire(bool completed) noexcept {
    if (completed) {
      completed_generation_ = generation_;
      end_is_next_ = true;
      ++iterations_;
      delivered_ = 0;
    }
    ++generation_;
  }
  [[nodiscard]] bool was_completed(std::uint64_t generation) const noexcept {
    return generation == completed_generation_;
  }
  // Batches or items of this iteration that the consumer has got so far.
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  // Returns 1 + the number of calls of retire().
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  // True if fail() was called since the beginning.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Any thread.
  [[nodiscard]] pybind11::dict stats() const;
  // Returns the decisions of an adaptive factor: {first epoch: array}.
  [[nodiscard]] pybind11::dict log() const { return log_dict(core().log()); }

  virtual int traverse(visitproc visit, void* arg) const;
  // Drops all references to objects, the source's too.
  void clear();

 protected:
  virtual void drop_items();
  // Returns the native core of the stage.
  [[nodiscard]] virtual EitherCore core() const = 0;
  // Checks an item of the source, and keeps it for put_held().
  virtual void hold(const pybind11::object& item) = 0;
  // Puts the held item from `row` on, or as many of its rows as fit, and advances `row` past them; an item that is no
  // batch has one. kOk: the item is no longer held. kFull only without `wait`; kTimeout, kHalted if paused meanwhile;
  // kClosed, kForked.
  virtual Outcome put_held(bool wait, std::size_t& row) = 0;
  // Has all items of a pass put by the pass itself: a NativePass or WorkedPass, which only come to a stage of examples.
  // Returns whether there were any; nothing if the pass is to go on later, because this stage is paused or stopped.
  virtual std::optional<bool> put_pass(const pybind11::object& /*pass*/) { return false; }
  // Returns how long the native source of the running pass has worked.
  [[nodiscard]] virtual std::uint64_t feeding_ns() const { return 0; }
  // Takes over what a native producer told of in failure_, if that is None.
  virtual void find_native_failure() {}
  // Takes the next emission: kOk with `emission` set; kEnd; kEmpty; others.
  virtual Outcome try_emit(PyObject*& emission) = 0;
  // Waits until the result of try_emit() may have changed. Called without the GIL. kOk, kEmpty; kTimeout if the slice
  // has passed; or another result of try_emit().
  virtual Outcome wait(Deadline slice) = 0;
  // Throws std::invalid_argument if there is no such extent.
  virtual Replay begin_core(const PlanPosition& position) {
    return without_gil(true, [&] { return core().begin(position); });
  }
  // Adds the items to `state` if there is a `payload`, see state(), and returns the input of the plan. `iterations`,
  // `batches`: taken by the last of the consumers.
  virtual PlanPosition inspect(pybind11::dict& state, bool payload, std::uint64_t iterations,
                               std::uint64_t batches) = 0;
  [[nodiscard]] bool stopped() const { return core().stopped(); }
  // Raises the exception for kForked, or else for kClosed.
  [[noreturn]] void raise_for(Outcome outcome) const { raise_outcome(outcome, name_); }

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
      core().await_resumed(slice);
      return Outcome::kTimeout;
    };
    return wait_answering_signals(deadline, patient, [this] { return paused(); });
  }
  // The first part of such a wait, for a caller without the GIL: to take it takes long beside a thread of plain Python.
  template <class Attempt>
  Outcome wait_a_slice(Deadline slice, const Attempt& attempt) {
    const trace::Span span(trace::Kind::kRoom);
    source_clock_.blocked();
    return attempt(slice);
  }
  // Returns what is put for an item of the source, see set_prepare().
  pybind11::object prepared(const pybind11::object& item);
  void hold_next(const Feed& feed);
  [[nodiscard]] bool read_by_consumer() const noexcept { return by_consumer_; }
  [[nodiscard]] bool paused() const noexcept { return paused_.load_relaxed(); }
  // Counts a batch that was taken and is not delivered.
  void drop() noexcept { ++dropped_; }
  SourceClock& source_clock() noexcept { return source_clock_; }

  pybind11::object failure_ = pybind11::none();  // for the consumer, once everything before it has been emitted

 private:
  void halt_core(bool halted) {
    without_gil(true, [&] { return core().set_halted(halted), true; });
  }
  // Lets go of what another thread was about to put when the stage was stopped.
  void drop_if_stopped();
  void leave_epoch();
  Replay start(const PlanPosition& position, std::uint64_t delivered, PyObject* error);
  PyObject* deliver(PyObject* emission) noexcept {
    ++delivered_;
    end_is_next_ = false;
    return emission;
  }
  PyObject* next_reference(Outcome outcome, bool may_pause);
  Outcome put_next(Feed& feed, bool wait, std::size_t& put);
  void pull(std::uint64_t missing);

  const std::string name_;
  [[no_unique_address]] SectionLock lock_;
  pybind11::object prepare_ = pybind11::none();  // see set_prepare()
  std::shared_ptr<Feed> feed_;                   // shared, because another thread may stop the stage during a read
  bool by_consumer_ = false;
  bool has_failed_ = false;
  Atomic<bool> paused_;
  std::thread::id consumer_;
  std::uint64_t generation_ = 1;
  std::uint64_t completed_generation_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t dropped_ = 0;     // batches of this iteration that were too short
  std::uint64_t iterations_ = 0;  // since begin()
  // Of these, what an earlier process has taken, and the plan has not drawn.
  std::uint64_t iterations_before_ = 0;
  std::uint64_t delivered_before_ = 0;
  bool end_is_next_ = false;  // see retire()
  bool ended_ = false;        // the last end is among iterations_: it is met again and again
  SourceClock source_clock_;
};

// Returns the C++ object of `self`, which must be a T, or null while it is under construction. Unlike pybind11::cast,
// does not use pybind11's registry: it no longer exists during the last collections of a finalizing interpreter, and
// its one lock would hold up threads that put at the same time.
template <class T>
T* native_of(pybind11::handle self) {
  const auto held = reinterpret_cast<pybind11::detail::instance*>(self.ptr())->get_value_and_holder();
  return held.holder_constructed() ? held.template value_ptr<T>() : nullptr;
}

// Allows one consumer of a stage at a time. Waits release the GIL, so another thread could enter; it gets an error.
class OneConsumer {
 public:
  explicit OneConsumer(Stage& stage) : consumer_(stage.consumer()) {
    if (consumer_ != std::thread::id()) {
      raise(errors().echo_error,
            "another thread is waiting for the next batch here, or takes the state; iterate from one thread at a time "
            "and hand the batches on");
    }
    consumer_ = std::this_thread::get_id();
  }
  ~OneConsumer() { consumer_ = {}; }
  OneConsumer(const OneConsumer&) = delete;
  OneConsumer& operator=(const OneConsumer&) = delete;

 private:
  std::thread::id& consumer_;
};

// Returns an iterator (iterator.cpp). Either `stage` or `owner` is None. An owner has two methods:
// - begin(), called at the first next(), ends older iterations and returns the stage and its generation.
// - finish(completed) is called at the end of the iteration (True), or if the iterator is destroyed earlier (False). It
//   is called once more if it raises.
pybind11::object new_iterator(const pybind11::object& stage, const pybind11::object& owner);

}  // namespace pyecho::bindings
