// A raw Python type, because __next__ is called for every emission, and pybind11's dispatch would cost more than the
// echo itself.
#include <cstdint>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"
#include "bindings/stages/stage.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

struct IteratorObject {
  PyObject_HEAD PyObject* stage_object;  // keeps `stage` alive; null before the first next()
  PyObject* owner;                       // null: no owner, or its finish() was called
  Atomic<Stage*> stage;                  // null before the first next(); stored after what next() then needs
  std::uint64_t generation;              // of the stage, when this iterator began; 0: it never retires
  bool ended;                            // once exhausted, always exhausted
  bool beginning;                        // a thread is inside begin()
};

PyTypeObject* iterator_type = nullptr;

IteratorObject* self_of(PyObject* object) noexcept { return reinterpret_cast<IteratorObject*>(object); }

// True if a later iteration has begun, for which the owner has ended this one.
bool retired(const IteratorObject& self, const Stage& stage) noexcept {
  return self.generation != 0 && self.generation != stage.generation();
}

// Calls the owner's finish() once per iterator. If a signal handler raises in the middle of it (Ctrl-C, or PyTorch's
// handler for a dead worker process), calls it again, so that it completes, and leaves the exception set. If Ctrl-C
// cuts that short as well, the next call of next() completes it.
void finish(PyObject* object, const Stage& stage, bool completed) {
  PyObject* const owner = self_of(object)->owner;
  if (owner == nullptr || retired(*self_of(object), stage)) {
    return;
  }
  self_of(object)->owner = nullptr;
  const auto call = [&] {
    return call_python([&] { return PyObject_CallMethod(owner, "finish", "O", completed ? Py_True : Py_False); });
  };
  PyObject* answer = call();
  if (answer == nullptr) {
    const py::error_scope raised;
    answer = call();
    if (answer == nullptr && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
      PyErr_Clear();
      self_of(object)->owner = owner;
      return;
    }
    if (answer == nullptr) {
      PyErr_WriteUnraisable(owner);
    }
  }
  Py_XDECREF(answer);
  Py_DECREF(owner);
}

Stage& begin(PyObject* object) {
  auto* const self = self_of(object);
  const Section section{py::handle(object)};
  if (Stage* const begun = self->stage.load_acquire(); begun != nullptr) {
    return *begun;  // by another thread just now
  }
  if (self->beginning) {
    raise(errors().echo_error,
          "another thread is about to begin this iteration; iterate from one thread at a time and hand the batches on");
  }
  self->beginning = true;
  const auto begun = py::reinterpret_steal<py::object>(
      call_python([&] { return PyObject_CallMethod(self->owner, "begin", nullptr); }));
  self->beginning = false;
  throw_if(!begun);
  const auto [stage, generation] = begun.cast<std::pair<py::object, std::uint64_t>>();
  self->stage_object = py::object(stage).release().ptr();
  self->generation = generation;
  self->stage.store_release(&stage.cast<Stage&>());
  return *self->stage.load_acquire();
}

[[noreturn]] void raise_retired() {
  raise(
      errors().closed,
      "a later iter() or set_epoch() of this loader has ended this iteration; a loader has one iteration at a time, so "
      "make a loader for each");
}

PyObject* next(PyObject* object) {
  auto* const self = self_of(object);
  try {
    Stage* const begun = self->stage.load_acquire();
    Stage& stage = begun == nullptr ? begin(object) : *begun;
    const Section section(stage.lock());
    if (self->ended) {
      finish(object, stage, true);
      return nullptr;
    }
    if (retired(*self, stage)) [[unlikely]] {
      if (stage.was_completed(self->generation)) {
        self->ended = true;
        return nullptr;
      }
      raise_retired();
    }
    const OneConsumer consumer(stage);
    PyObject* emitted = nullptr;
    try {
      emitted = stage.next();
    } catch (py::error_already_set& error) {
      if (retired(*self, stage) && error.matches(errors().closed)) {  // while this thread waited
        raise_retired();
      }
      throw;
    }
    if (emitted == nullptr) {
      self->ended = true;
      finish(object, stage, true);
    }
    return emitted;
  } catch (...) {
    set_caught();
  }
  return nullptr;
}

void finalize(PyObject* object) {
  const py::error_scope pending;
  if (Stage* const stage = self_of(object)->stage.load_acquire(); stage != nullptr) {  // else it never began
    const Section section(stage->lock());
    finish(object, *stage, self_of(object)->ended);
  }
  if (PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
      PyErr_Clear();
      PyErr_SetInterrupt();  // repeats Ctrl-C, so that it is raised where it can propagate
    } else {
      PyErr_WriteUnraisable(object);
    }
  }
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self_of(object)->stage_object);
  Py_VISIT(self_of(object)->owner);
  return 0;
}

// The collector calls finalize() (tp_finalize) before it breaks a cycle, while the owner is still intact.
void dealloc(PyObject* object) {
  if (PyObject_CallFinalizerFromDealloc(object) != 0) {
    return;
  }
  PyObject_GC_UnTrack(object);
  Py_CLEAR(self_of(object)->stage_object);
  Py_CLEAR(self_of(object)->owner);
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyType_Slot iterator_slots[] = {
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(next)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_finalize, reinterpret_cast<void*>(finalize)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_doc, const_cast<char*>("Iterates over the emissions of a stage.")},
    {0, nullptr},
};

PyType_Spec iterator_spec = {
    .name = "pyecho._core.Iterator",
    .basicsize = sizeof(IteratorObject),
    .itemsize = 0,
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = iterator_slots,
};

}  // namespace

py::object new_iterator(const py::object& stage, const py::object& owner) {
  py::object object = owned(iterator_type->tp_alloc(iterator_type, 0));
  auto* const self = self_of(object.ptr());  // zeroed
  self->stage_object = stage.is_none() ? nullptr : py::object(stage).release().ptr();
  self->owner = owner.is_none() ? nullptr : py::object(owner).release().ptr();
  self->stage.store_release(stage.is_none() ? nullptr : &stage.cast<Stage&>());
  return object;
}

void register_iterator(py::module_& module) {
  py::object type = owned(PyType_FromSpec(&iterator_spec));
  module.attr("Iterator") = type;
  iterator_type = reinterpret_cast<PyTypeObject*>(type.release().ptr());
  module.def(
      "iterate", [](const py::object& owner) { return new_iterator(py::none(), owner); }, py::arg("owner"),
      "An iterator of the stage that `owner.begin()` will return.");
}

}  // namespace pyecho::bindings
