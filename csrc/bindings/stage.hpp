// pyecho._core.Stage: what the native stages have in common for Python: reading a source, epochs, errors, the end.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/reader.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho::bindings {

// All members with the GIL held; waits and long copies release it.
class Stage {
 public:
  // `name` names the object in messages ("EchoBuffer").
  explicit Stage(std::string name) : name_(std::move(name)) {}
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // -- Producers --

  // Sets what is read from now on: an iterator of iterators, one for each pass over the source. `by_consumer`: the consumer
  // reads it whenever it needs items, and there is no producer. Else a thread calls feed().
  void read(const pybind11::object& passes, bool by_consumer);
  // Reads and puts every item; waits for room. Returns when the source has ended or raised, which the consumer learns,
  // or when the stage is stopped or paused. One thread at a time.
  void feed();
  // No more input.
  virtual void close() = 0;
  // As close(), and the consumer receives `error` once everything before it has been emitted.
  void fail(pybind11::object error);
  // Ends feed(), and waits of other threads that fill or take, within a moment; nothing is lost, and another thread may go
  // on after set_paused(false).
  void set_paused(bool paused) noexcept { paused_.store_relaxed(paused); }
  // Abandons everything.
  void stop();

  // -- Consumer --

  // The next batch or item as a new reference, or null at the end of an iteration. Raises what fail() was given, Closed,
  // and what the stage itself raises.
  PyObject* next_reference() {
    PyObject* emission = nullptr;
    const Outcome outcome = try_emit(emission);
    return outcome == Outcome::kOk ? emission : next_reference(outcome, false);
  }
  // As next_reference(), for a thread of pyecho's: raises StopIteration at the end of an iteration, Closed when paused.
  pybind11::object take();
  // The last iteration is over: next_reference() goes on answering null.
  [[nodiscard]] virtual bool at_end() const = 0;
  // Starts with iteration `epoch`; what the last one has left is dropped. Needs that no producer is inside.
  void begin(std::uint64_t epoch, std::optional<std::uint64_t> items);

  // A consumer is inside; see Iterator.
  [[nodiscard]] bool& busy() noexcept { return busy_; }
  // Iterators that began before end here; see Iterator.
  void retire() noexcept { ++generation_; }
  // How often retire() was called, and 1.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Any thread.
  [[nodiscard]] virtual pybind11::dict stats() const = 0;

  virtual int traverse(visitproc visit, void* arg) const;
  virtual void clear();

 protected:
  // Checks an item that was read, and keeps it for put_held().
  virtual void hold(const pybind11::object& item) = 0;
  [[nodiscard]] virtual bool holds_item() const = 0;
  // Puts the item that is held, or as many of its rows as there is room for; `put` counts items as the stage does. kOk: it
  // is not held any more. kFull if not to wait; kTimeout if paused meanwhile; kClosed, kForked.
  virtual Outcome put_held(bool wait, std::uint64_t& put) = 0;
  // Marks the end of a pass: kOk, kTimeout, kClosed, kForked. No GIL needed.
  virtual Outcome mark_pass_end(Deadline deadline) = 0;
  // The next emission: kOk with `emission` set; kEnd; kEmpty; others.
  virtual Outcome try_emit(PyObject*& emission) = 0;
  // Waits until try_emit() may answer something else, without the GIL: kOk, kEmpty; kTimeout if the slice has passed; or
  // what try_emit() would have answered.
  virtual Outcome wait(Deadline slice) = 0;
  // Items that have to be put before try_emit() can answer something else than kEmpty; 0 if not items are missing.
  [[nodiscard]] virtual std::uint64_t needed() const = 0;
  virtual void begin_core(std::uint64_t epoch, std::uint64_t items) = 0;
  virtual void stop_core() = 0;
  [[nodiscard]] virtual bool stopped() const = 0;
  // The exception for an outcome that no consumer gets in the ordinary course.
  [[noreturn]] virtual void raise_for(Outcome outcome) const;

  [[nodiscard]] bool read_by_consumer() const noexcept { return by_consumer_; }
  [[nodiscard]] bool paused() const noexcept { return paused_.load_relaxed(); }
  [[nodiscard]] std::uint64_t source_ns() const noexcept { return source_ns_.load_relaxed(); }

 private:
  PyObject* next_reference(Outcome outcome, bool may_pause);
  bool read_one(Reader& reader);
  void drop_if_stopped();
  void pull();

  const std::string name_;
  pybind11::object failure_ = pybind11::none();
  std::shared_ptr<Reader> reader_;  // another thread may stop the stage while one reads
  bool by_consumer_ = false;
  bool pass_ended_ = false;  // the end of a pass was read, and not marked yet
  Atomic<bool> paused_;
  Atomic<std::uint64_t> source_ns_;
  bool busy_ = false;
  std::uint64_t generation_ = 1;
};

void register_stage(pybind11::module_& module);

}  // namespace pyecho::bindings
