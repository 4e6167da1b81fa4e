// pyecho._core.Stage: the common base of the native stages. Handles reading a source, epochs, errors and the end.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "bindings/gil.hpp"
#include "core/memory/slot_pool.hpp"
#include "core/stage/source_clock.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho::bindings {

class Reader;

// All members need the GIL; waits and long copies release it.
class Stage {
 public:
  // `name` names the object in messages ("EchoBuffer").
  explicit Stage(std::string name) : name_(std::move(name)) {}
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // -- Producers --

  // Sets the source: `passes` is an iterator of iterators, one for each pass. `by_consumer`: the consumer reads the source
  // when it needs items, and there is no producer. Otherwise a thread must call feed().
  void read(const pybind11::object& passes, bool by_consumer);
  // Reads and puts every item; waits for room. Returns when the source has ended or raised (the consumer gets the
  // exception), or when the stage is stopped or paused. One thread at a time.
  void feed();
  // Ends the input.
  virtual void close() = 0;
  // Same as close(), but the consumer receives `error` once everything before it has been emitted.
  void fail(pybind11::object error);
  // Ends feed(), and soon also the waits of other threads that fill or take. Nothing is lost: another thread may continue
  // after set_paused(false).
  void set_paused(bool paused) noexcept { paused_.store_relaxed(paused); }
  // Stops the stage and drops its items.
  void stop();

  // -- Consumer --

  // Returns the next batch or item as a new reference, or null at the end of an iteration. Raises the exception passed to
  // fail(), Closed, and exceptions of the stage.
  PyObject* next_reference() {
    PyObject* emission = nullptr;
    const Outcome outcome = try_emit(emission);
    return outcome == Outcome::kOk ? deliver(emission) : next_reference(outcome, false);
  }
  // Same as next_reference(), for pyecho's own threads. Raises StopIteration at the end of an iteration, Closed if paused.
  pybind11::object take();
  // True once the last iteration is over. From then on, next_reference() returns null.
  [[nodiscard]] virtual bool at_end() const = 0;
  // Starts with iteration `epoch` and drops the rest of the last one. No producer may be inside.
  // Waits for a consumer in another thread to leave. Raises EchoError in a signal handler or destructor inside of next().
  void begin(std::uint64_t epoch, std::optional<std::uint64_t> items);

  // The thread inside next_reference(); none: std::thread::id(). See iterator.cpp.
  [[nodiscard]] std::thread::id& consumer() noexcept { return consumer_; }
  // Retires all iterators that began before. `completed`: the iteration has nothing left but its end, which
  // the next one passes over, and its iterators end rather than raise.
  void retire(bool completed) noexcept {
    if (completed) {
      completed_generation_ = generation_;
      end_is_next_ = true;
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
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Any thread.
  [[nodiscard]] virtual pybind11::dict stats() const = 0;

  virtual int traverse(visitproc visit, void* arg) const;
  virtual void clear();

 protected:
  // Checks an item of the source, and keeps it for put_held().
  virtual void hold(const pybind11::object& item) = 0;
  [[nodiscard]] virtual bool holds_item() const = 0;
  // Puts the held item, or as many of its rows as fit, and adds their number to `put` (rows in example echoing). kOk: the
  // item is no longer held. kFull only without `wait`; kTimeout if paused meanwhile; kClosed, kForked.
  virtual Outcome put_held(bool wait, std::uint64_t& put) = 0;
  // Marks the end of a pass: kOk, kTimeout, kClosed, kForked. No GIL needed.
  virtual Outcome mark_pass_end(Deadline deadline) = 0;
  // Takes the next emission: kOk with `emission` set; kEnd; kEmpty; others.
  virtual Outcome try_emit(PyObject*& emission) = 0;
  // Waits until the result of try_emit() may have changed. Called without the GIL. kOk, kEmpty; kTimeout if the slice has
  // passed; or another result of try_emit().
  virtual Outcome wait(Deadline slice) = 0;
  // After try_emit() returned kEmpty: returns how many items must be put before the next attempt is useful, or 0 if it does
  // not wait for items.
  [[nodiscard]] virtual std::uint64_t needed() const = 0;
  virtual Outcome begin_core(std::uint64_t epoch, std::uint64_t items) = 0;
  virtual void stop_core() = 0;
  [[nodiscard]] virtual bool stopped() const = 0;
  // Raises the exception for an outcome other than kOk, kEmpty and kEnd.
  [[noreturn]] virtual void raise_for(Outcome outcome) const;

  // Waits for `attempt` (see wait_answering_signals) on the producers' side. kTimeout also if paused meanwhile.
  template <class Attempt>
  Outcome wait_for_room(Deadline deadline, const Attempt& attempt) {
    const trace::Span span(trace::Kind::kRoom);
    source_clock_.blocked();
    return wait_answering_signals(deadline, attempt, [this] { return paused(); });
  }
  // Lets go of what another thread was about to put when the stage was stopped.
  void drop_if_stopped();
  [[nodiscard]] bool read_by_consumer() const noexcept { return by_consumer_; }
  [[nodiscard]] bool paused() const noexcept { return paused_.load_relaxed(); }
  [[nodiscard]] const SourceClock& source_clock() const noexcept { return source_clock_; }

 private:
  PyObject* deliver(PyObject* emission) noexcept {
    ++delivered_;
    end_is_next_ = false;
    return emission;
  }
  PyObject* next_reference(Outcome outcome, bool may_pause);
  Outcome read_and_put(Reader& reader, bool wait, std::uint64_t& put);
  void pull();

  const std::string name_;
  pybind11::object failure_ = pybind11::none();
  std::shared_ptr<Reader> reader_;  // shared, because another thread may stop the stage during a read
  pybind11::object read_;           // the item that was read while hold() has not returned; null: none
  bool by_consumer_ = false;
  bool pass_ended_ = false;  // true if the end of a pass was read and is not marked yet
  Atomic<bool> paused_;
  std::thread::id consumer_;
  std::uint64_t generation_ = 1;
  std::uint64_t completed_generation_ = 0;
  std::uint64_t delivered_ = 0;
  bool end_is_next_ = false;  // see retire()
  SourceClock source_clock_;
};

// A stage around its native core, an EchoBuffer or an EchoQueue.
template <class Core>
class StageOf : public Stage {
 public:
  using Stage::Stage;

  void close() override { core_->close(); }
  [[nodiscard]] bool at_end() const override { return core_->at_end(); }

 protected:
  Outcome mark_pass_end(Deadline deadline) override {
    Reservation place{};
    const Outcome outcome = core_->reserve(place, deadline);
    if (outcome == Outcome::kOk) {
      core_->end_pass(place);
    }
    return outcome;
  }
  [[nodiscard]] std::uint64_t needed() const override { return core_->needed(); }
  Outcome begin_core(std::uint64_t epoch, std::uint64_t items) override {
    return without_gil(true, [&] { return core_->begin(epoch, items); });
  }
  void stop_core() override { core_->stop(); }
  [[nodiscard]] bool stopped() const override { return core_->stopped(); }

  std::unique_ptr<Core> core_;
};

// Returns an iterator (iterator.cpp). Either `stage` or `owner` is None. An owner has two methods:
// - begin(), called at the first next(), ends older iterations and returns the stage and its generation.
// - finish(completed) is called at the end of the iteration (True), or if the iterator is destroyed earlier (False). It is
//   called once more if it raises.
pybind11::object new_iterator(const pybind11::object& stage, const pybind11::object& owner);

}  // namespace pyecho::bindings
