// Critical sections: on a free-threaded Python they do for one object what the GIL does for all. With a GIL they are
// empty.
//
// A Section holds a SectionLock, like a GIL of the object that owns it:
// - CPython gives it up while the thread waits, or is detached (GilRelease), and takes it again before the thread goes
//   on. So no thread waits for anything with a Section, and two of them cannot deadlock.
// - call_python() (gil.hpp) gives up all Sections of the thread, or a source that computes would lock out the consumer.
// - Other calls into Python (destructors, comparisons of keys, signal handlers) may give them up.
// - A thread may enter a Section that it is in. Only the innermost Section is sure to be held.
// Code that is right with a GIL is therefore right in a Section, as long as it touches the state of one object only.
//
// Shared by free threads     | protected by
// Stage, ExampleStage,       | the stage's Section, entered by every bound method (guarded()) and by next(); but put()
// ObjectStage                | and reserve() are outside of it, and enter it for references only
// core_                      | nothing: set before the stage is shared, and by _resume(), when no other thread is inside;
//                            | the core itself says which calls are for any thread
// acquired_                  | consumer_: its wait() writes it without a Section
// IteratorObject             | begin(): the iterator's own Section; all else: that of its stage. `stage` is an atomic word
// Turns, SlotPlan,           | a Section of their own
// ReservationObject          |
// SlotWriter                 | nothing: not changed once made; the stage decides who may write to a slot
// spare views of ItemViews   | an atomic word: a view belongs to the thread that takes it
// the recorder of traces     | its start and stop: a Section; the rest: recorder.hpp
// error types, hooks of      | nothing: written while the module is imported
// sharing, iterator_type     |
// the type torch.Tensor      | an atomic word
// dicts and lists of users   | read by new references (dict_item()), or in a Section of their own
#pragma once

#include <pybind11/critical_section.h>
#include <pybind11/pybind11.h>

#include <utility>

namespace pyecho::bindings {

#ifdef Py_GIL_DISABLED

class SectionLock {
 public:
  [[nodiscard]] pybind11::handle object() const noexcept { return &object_; }

 private:
  mutable PyObject object_{};  // of which only the mutex is used
};

class Section {
 public:
  explicit Section(const SectionLock& lock) : section_(lock.object()) {}
  // Locks Python objects, one or two.
  explicit Section(pybind11::handle object, pybind11::handle other = {}) : section_(object, other) {}

 private:
  pybind11::scoped_critical_section section_;
};

// Gives up all Sections of the thread until it is destroyed. A thread that is detached gives up its sections, and takes
// only the innermost one again: here an empty one.
class OutOfSections {
 public:
  OutOfSections() : section_(lock_) {}

 private:
  SectionLock lock_;
  Section section_;
};

// Returns `method` as a function of a Self that enters the object's Section.
template <class Self, class Result, class Object, class... Arguments>
auto guarded(Result (Object::*method)(Arguments...)) {
  return [method](Self& object, Arguments... arguments) -> Result {
    const Section section(object.lock());
    return (object.*method)(std::forward<Arguments>(arguments)...);
  };
}
template <class Self, class Result, class Object, class... Arguments>
auto guarded(Result (Object::*method)(Arguments...) const) {
  return [method](const Self& object, Arguments... arguments) -> Result {
    const Section section(object.lock());
    return (object.*method)(std::forward<Arguments>(arguments)...);
  };
}

#else

class SectionLock {};

class Section {
 public:
  explicit Section(const SectionLock& /*lock*/) noexcept {}
  explicit Section(pybind11::handle /*object*/, pybind11::handle /*other*/ = {}) noexcept {}
};

template <class Self, class Method>
Method guarded(Method method) {
  return method;
}

#endif

// Returns the value of a key; null if there is none, or with an exception set.
inline pybind11::object dict_item(PyObject* dict, PyObject* key) {
#ifdef Py_GIL_DISABLED
  PyObject* value = nullptr;
  static_cast<void>(PyDict_GetItemRef(dict, key, &value));
  return pybind11::reinterpret_steal<pybind11::object>(value);
#else
  return pybind11::reinterpret_borrow<pybind11::object>(PyDict_GetItemWithError(dict, key));
#endif
}

}  // namespace pyecho::bindings
