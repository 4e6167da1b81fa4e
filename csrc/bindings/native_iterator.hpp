// What the iterators have in common: a raw Python type over a stage, because __next__ is called for every emission and
// pybind11's dispatch would cost more than the echo itself.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

#include "bindings/errors.hpp"

namespace pyecho::bindings {

// A stage has one consumer at a time. Waits give up the GIL, so another thread could come in: it gets an error instead.
class OneConsumer {
 public:
  // `busy`: the stage's, read and written with the GIL. Raises EchoError if it is set.
  explicit OneConsumer(bool& busy) : busy_(busy) {
    if (busy_) {
      raise(errors().echo_error,
            "another thread is waiting for the next batch here; iterate from one thread at a time and hand the batches "
            "on");
    }
    busy_ = true;
  }
  ~OneConsumer() { busy_ = false; }
  OneConsumer(const OneConsumer&) = delete;
  OneConsumer& operator=(const OneConsumer&) = delete;

 private:
  bool& busy_;
};

// Iterates `Stage` (a bound class with `PyObject* next_reference()`: a new reference, or null at the end, with an
// exception thrown on error; and `bool& busy()`). `owner` may be None; else its method finish() is called at the end of
// the iteration or when the iterator dies, whichever comes first: once, or twice if the first call raised.
template <class Stage>
struct IteratorObject {
  PyObject_HEAD PyObject* stage_object;  // keeps `stage`
  PyObject* owner;                       // null once finished
  Stage* stage;
  bool ended;  // an iterator that has ended stays so, whatever becomes of its stage

  static IteratorObject* self(PyObject* object) noexcept { return reinterpret_cast<IteratorObject*>(object); }

  // Call the owner's finish(), the first time. A signal handler may raise in the middle of it (Ctrl-C; PyTorch's, when a
  // worker process died): then it is called again, to be whole, and that exception is left set.
  static void finish(PyObject* object) {
    PyObject* const owner = self(object)->owner;
    if (owner == nullptr) {
      return;
    }
    self(object)->owner = nullptr;
    PyObject* answer = PyObject_CallMethod(owner, "finish", nullptr);
    if (answer == nullptr) {
      PyObject* type = nullptr;
      PyObject* value = nullptr;
      PyObject* traceback = nullptr;
      PyErr_Fetch(&type, &value, &traceback);
      answer = PyObject_CallMethod(owner, "finish", nullptr);
      if (answer == nullptr) {
        PyErr_WriteUnraisable(owner);
      }
      PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(answer);
    Py_DECREF(owner);
  }

  static void finalize(PyObject* object) {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    finish(object);
    if (PyErr_Occurred() != nullptr) {
      if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
        PyErr_Clear();
        PyErr_SetInterrupt();  // let Ctrl-C come again where it can be raised
      } else {
        PyErr_WriteUnraisable(object);
      }
    }
    PyErr_Restore(type, value, traceback);
  }

  static PyObject* next(PyObject* object) {
    if (self(object)->ended) {
      return nullptr;
    }
    try {
      Stage& stage = *self(object)->stage;
      const OneConsumer consumer(stage.busy());
      PyObject* const emitted = stage.next_reference();
      if (emitted == nullptr) {
        self(object)->ended = true;
        finish(object);
      }
      return emitted;
    } catch (pybind11::error_already_set& error) {
      error.restore();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
  }

  static int traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self(object)->stage_object);
    Py_VISIT(self(object)->owner);
    return 0;
  }

  // The collector calls finalize() (tp_finalize) before it takes a cycle apart, while the owner is still whole.
  static void dealloc(PyObject* object) {
    if (PyObject_CallFinalizerFromDealloc(object) != 0) {
      return;
    }
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self(object)->stage_object);
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
  }

  // `type` is filled in; call once.
  static PyTypeObject* make_type(const char* name, const char* doc) {
    PyType_Slot slots[] = {
        {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
        {Py_tp_iternext, reinterpret_cast<void*>(next)},
        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
        {Py_tp_finalize, reinterpret_cast<void*>(finalize)},
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_doc, const_cast<char*>(doc)},
        {0, nullptr},
    };
    PyType_Spec spec = {
        .name = name,
        .basicsize = sizeof(IteratorObject),
        .itemsize = 0,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    PyObject* const type = PyType_FromSpec(&spec);
    if (type == nullptr) {
      throw pybind11::error_already_set();
    }
    return reinterpret_cast<PyTypeObject*>(type);
  }

  static pybind11::object make(PyTypeObject* type, const pybind11::object& stage, const pybind11::object& owner) {
    Stage* const native = &stage.cast<Stage&>();
    PyObject* const object = type->tp_alloc(type, 0);
    if (object == nullptr) {
      throw pybind11::error_already_set();
    }
    self(object)->stage = native;
    self(object)->ended = false;
    self(object)->stage_object = pybind11::object(stage).release().ptr();
    self(object)->owner = owner.is_none() ? nullptr : pybind11::object(owner).release().ptr();
    return pybind11::reinterpret_steal<pybind11::object>(object);
  }
};

}  // namespace pyecho::bindings
