// Lets the thread that drops an object last destroy it, whichever made it.
//
// A free-threaded Python counts the references of the thread that made an object apart from those of all others. If
// another thread drops the last reference, it leaves the object to the maker, which destroys it when it next runs
// Python code, and while the maker waits for a batch that is never. A batch must return its memory at once, or the
// stage would add more. So what a batch is made of, and what an augmentation returns, gives up its maker: from then on
// all threads share one count. With a GIL all of this compiles to nothing.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>

namespace pyecho::bindings {

#ifdef Py_GIL_DISABLED

// For a list that contains itself.
inline constexpr int kMaxNestLevels = 8;

// Call in the thread that made the object; does nothing for an object of another thread, or an immortal one.
// _Py_ExplicitMergeRefcount() does the same, but extensions cannot call it, and no public function does, up to 3.14:
// PyUnstable_Object_EnableDeferredRefcount() leaves the object to the garbage collector, which is later still, and
// PyUnstable_EnableTryIncRef() does not take it from its maker. Hence the private fields.
inline void give_up_ownership(PyObject* object) noexcept {
  const std::uint32_t local = std::atomic_ref(object->ob_ref_local).load();
  if (_Py_IsOwnedByCurrentThread(object) == 0 || local == _Py_IMMORTAL_REFCNT_LOCAL) {
    return;
  }
  // In this order: a thread with the same address, started later, must not take itself for the maker of a merged
  // object.
  std::atomic_ref(object->ob_ref_local).store(0);
  std::atomic_ref(object->ob_tid).store(_Py_UNOWNED_TID);
  const std::atomic_ref shared(object->ob_ref_shared);
  Py_ssize_t before = shared.load();
  while (!shared.compare_exchange_weak(
      before, _Py_REF_SHARED((before >> _Py_REF_SHARED_SHIFT) + static_cast<Py_ssize_t>(local), _Py_REF_MERGED))) {
  }
}

// Same for tuples, lists and dicts, and for what is in them, so many levels down. `object` may be null.
inline void give_up_nest(PyObject* object, int levels = kMaxNestLevels) {
  if (object == nullptr) {
    return;
  }
  give_up_ownership(object);
  if (levels == 0) {
    return;
  }
  // References of its own to the children of a list or dict, because another thread may change it.
  pybind11::object children;
  if (PyTuple_Check(object)) {
    children = pybind11::reinterpret_borrow<pybind11::object>(object);
  } else if (PyList_CheckExact(object)) {
    children = pybind11::reinterpret_steal<pybind11::object>(PyList_AsTuple(object));
  } else if (PyDict_CheckExact(object)) {
    children = pybind11::reinterpret_steal<pybind11::object>(PyDict_Values(object));
  }
  if (!children) {  // a leaf, or no memory
    PyErr_Clear();
    return;
  }
  PyObject** const items = PySequence_Fast_ITEMS(children.ptr());
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(children.ptr()); ++i) {
    give_up_nest(items[i], levels - 1);
  }
}

#else

inline void give_up_ownership(PyObject* /*object*/) noexcept {}
inline void give_up_nest(PyObject* /*object*/) noexcept {}

#endif

}  // namespace pyecho::bindings
