// pyecho._core.Stage: what the native stages know of their source and of their consumer. PyStage (py_stage.hpp) puts a
// native core to it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/section.hpp"
#include "bindings/stages/reader.hpp"
#include "core/stage/clocks.hpp"
#include "core/sync/atomic.hpp"

namespace pyecho::bindings {

// All members need the GIL and the stage's Section (section.hpp); waits, long copies and calls into Python release
// both.
class Stage {
 public:
  // Raises TypeError. pybind11 calls it for methods of a Python object whose __init__() has not run yet, and would take
  // the memory for a stage. Stages are made by std::make_shared, which does not.
  static void* operator new(std::size_t size);  // NOLINT(misc-new-delete-overloads)
  ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Locked by a Section of this stage.
  [[nodiscard]] const SectionLock& lock() const noexcept { return lock_; }

  // -- The source --

  // Sets the source: `passes` is an iterator of iterators, one for each pass. `by_consumer`: the consumer reads the
  // source when it needs items, and there is no producer. Otherwise a thread must call feed(). `first`: items that were
  // read ahead of `passes`; so many rows of the first one are skipped. `at_empty`: None, or a later pass without items
  // ends the source; it fails with `at_empty` if that is an exception.
  void read(const pybind11::object& passes, bool by_consumer, std::deque<pybind11::object> first,
            std::size_t skipped_rows, const pybind11::object& at_empty) {
    reader_ = std::make_shared<Reader>(passes, std::move(first), skipped_rows, at_empty, source_clock_);
    by_consumer_ = by_consumer;
    has_failed_ = false;
  }
  // Has the items of the source put as what `prepare`, a callable, returns of them.
  void set_prepare(pybind11::object prepare) { prepare_ = std::move(prepare); }
  // Lets go of the source; a thread in feed(), which should be paused, does so there. The items stay.
  void leave_source() { const std::shared_ptr<Reader> dying = std::exchange(reader_, nullptr); }
  // True if fail() was called since the beginning.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }

  // -- The consumer, see consumer.cpp --

  // As PyStage::next_reference().
  PyObject* next() { return next_(*this); }
  // The thread inside next(); none: std::thread::id().
  [[nodiscard]] std::thread::id& consumer() noexcept { return consumer_; }
  // Retires all iterators that began before. `completed`: the iteration has nothing left but its end, which
  // the next one passes over, and its iterators end rather than raise.
  void retire(bool completed) noexcept {
    if (completed) {
      completed_generation_ = generation_;
      next_end_ = End::kPassedOver;
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

 protected:
  using Next = PyObject* (*)(Stage& stage);
  // `name` names the object in messages ("EchoBuffer").
  Stage(std::string name, Next call) : name_(std::move(name)), next_(call) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool paused() const noexcept { return paused_.load_relaxed(); }
  // Raises the exception for kForked, or else for kClosed.
  [[noreturn]] void raise_for(Outcome outcome) const { raise_outcome(outcome, name_); }
  // Returns what is put for an item of the source, see set_prepare().
  pybind11::object prepared(const pybind11::object& item) {
    return prepare_.is_none() ? item : call_python([&] { return prepare_(item); });
  }

  // How the end that the consumer meets next counts.
  enum class End : unsigned char {
    kCounted,     // as one of iterations_
    kPassedOver,  // not at all, since retire() has counted it
    kMetAgain     // not again: it is the last one, which is met again and again
  };

  SourceClock source_clock_;
  pybind11::object prepare_ = pybind11::none();
  std::shared_ptr<Reader> reader_;  // shared, because another thread may stop the stage during a read
  bool by_consumer_ = false;
  bool has_failed_ = false;
  pybind11::object failure_ = pybind11::none();  // for the consumer, once everything before it has been emitted
  Atomic<bool> paused_;

  std::thread::id consumer_;
  std::uint64_t delivered_ = 0;
  std::uint64_t dropped_ = 0;     // batches of this iteration that were too short
  std::uint64_t iterations_ = 0;  // since begin()
  End next_end_ = End::kCounted;
  // Of these, what an earlier process has taken, and the plan has not drawn.
  std::uint64_t iterations_before_ = 0;
  std::uint64_t delivered_before_ = 0;

 private:
  const std::string name_;
  const Next next_;
  [[no_unique_address]] SectionLock lock_;
  std::uint64_t generation_ = 1;
  std::uint64_t completed_generation_ = 0;
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

// Returns an iterator (consumer.cpp). Either `stage` or `owner` is None. An owner has two methods:
// - begin(), called at the first next(), ends older iterations and returns the stage and its generation.
// - finish(completed) is called at the end of the iteration (True), or if the iterator is destroyed earlier (False). It
//   is called once more if it raises.
pybind11::object new_iterator(const pybind11::object& stage, const pybind11::object& owner);

}  // namespace pyecho::bindings
