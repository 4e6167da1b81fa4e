#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/example_stage.hpp"
#include "bindings/registration.hpp"
#include "bindings/section.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

class ReservationObject {
 public:
  ReservationObject(std::shared_ptr<ExampleStage> buffer, std::optional<double> timeout_s, const py::dict& shapes)
      : buffer_(std::move(buffer)),
        core_(buffer_->shared_core()),
        shapes_(buffer_->checked_shapes(shapes)),
        arrays_(shapes_.size()),
        reservation_(buffer_->reserve(timeout_s)) {}
  // Aborts an open reservation, because it would hold up all later ones.
  ~ReservationObject() {
    if (open_) {
      core_->abort(reservation_);
    }
  }
  ReservationObject(const ReservationObject&) = delete;
  ReservationObject& operator=(const ReservationObject&) = delete;

  // Returns the nest of arrays on the slot. They keep the buffer's memory alive through `self`.
  py::object views(py::handle self) {
    const Section section(lock_);
    require_open("views");
    std::vector<py::object> arrays = buffer_->slot_views(reservation_, self, shapes_, arrays_);
    for (const py::object& array : arrays) {
      views_.emplace_back(py::weakref(array));
    }
    return buffer_->structure().unflatten(arrays);
  }

  // Commits the slot, or else aborts it.
  template <bool kCommit>
  py::object finish(py::handle /*self*/) {
    const Section section(lock_);
    require_open(kCommit ? "commit" : "abort");
    if (kCommit) {
      buffer_->fill_variable(reservation_, shapes_, arrays_);
    }
    open_ = false;
    for (const py::object& reference : views_) {
      if (const py::object array = owned(PyObject_CallNoArgs(reference.ptr())); !array.is_none()) {
        PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
      }
    }
    views_.clear();
    if (kCommit) {
      core_->commit(reservation_);
    } else {
      core_->abort(reservation_);
    }
    return py::none();
  }

 private:
  void require_open(const char* what) const {
    if (!open_) {
      raise(errors().closed, std::string("this reservation was committed or aborted, ") + what +
                                 " is no longer possible; reserve() another slot");
    }
  }

  [[no_unique_address]] SectionLock lock_;
  std::shared_ptr<ExampleStage> buffer_;
  std::shared_ptr<EchoBuffer> core_;  // whose slot it is: load_state_dict() may give the buffer another one
  const ExampleStage::Shapes shapes_;
  std::vector<py::object> arrays_;  // of the leaves of variable size; null until there are views
  Reservation reservation_;
  std::vector<py::object> views_;  // weak references, because the arrays refer to this object
  bool open_ = true;
};

// A plain type of CPython's: an instance of pybind11's, and calls of its methods, cost more than all else here.
struct ReservationHolder {
  PyObject base;
  ReservationObject* held;  // null until the slot is reserved
};

PyTypeObject* reservation_type = nullptr;

// Calls a method; `Unused` is what CPython passes besides.
template <auto kMethod, class Unused = PyObject>
PyObject* call(PyObject* self, Unused* /*unused*/) {
  try {
    return (reinterpret_cast<ReservationHolder*>(self)->held->*kMethod)(self).release().ptr();
  } catch (...) {
    set_caught();
  }
  return nullptr;
}

constexpr auto kViews = &ReservationObject::views;
constexpr auto kCommit = &ReservationObject::finish<true>;
constexpr auto kAbort = &ReservationObject::finish<false>;

PyObject* exit_block(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 3) {
    return PyErr_Format(PyExc_TypeError, "__exit__() takes 3 arguments (%zd given)", count);
  }
  return arguments[0] == Py_None ? call<kCommit>(self, self) : call<kAbort>(self, self);
}

void free_reservation(PyObject* self) {
  {
    const py::error_scope pending;
    delete reinterpret_cast<ReservationHolder*>(self)->held;
  }
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef reservation_methods[] = {
    {"commit", call<kCommit>, METH_NOARGS,
     "commit($self, /)\n--\n\nHand the example over. The views become read-only."},
    {"abort", call<kAbort>, METH_NOARGS, "abort($self, /)\n--\n\nGive the slot back without an example."},
    {"__enter__", call<kViews>, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(exit_block)), METH_FASTCALL,
     "__exit__($self, exc_type, exc, traceback, /)\n--\n\n"},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef reservation_members[] = {
    {"views", call<kViews, void>, nullptr, "New writable arrays on the slot, in the nest of the spec.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot reservation_slots[] = {
    {Py_tp_methods, reservation_methods},
    {Py_tp_getset, reservation_members},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_reservation)},
    {Py_tp_doc, const_cast<char*>("A slot to write an example into; a context manager that commits, or aborts on an "
                                  "exception.")},
    {0, nullptr},
};

PyType_Spec reservation_spec = {
    .name = "pyecho._core.Reservation",
    .basicsize = sizeof(ReservationHolder),
    .itemsize = 0,
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = reservation_slots,
};

}  // namespace

py::object make_reservation(const py::object& self, std::optional<double> timeout_s, const py::dict& shapes) {
  std::ignore = self.cast<ExampleStage&>();  // raises before __init__(), with a better text than the next line
  auto buffer = self.cast<std::shared_ptr<ExampleStage>>();
  if (buffer->has_references()) {
    raise(errors().config_error,
          "reserve() needs a spec of arrays and numbers, but this one has leaves that travel by reference; use put()");
  }
  py::object made = owned(reservation_type->tp_alloc(reservation_type, 0));
  reinterpret_cast<ReservationHolder*>(made.ptr())->held = new ReservationObject(std::move(buffer), timeout_s, shapes);
  return made;
}

void register_reservation(py::module_& module) {
  py::object type = owned(PyType_FromSpec(&reservation_spec));
  module.attr("Reservation") = type;
  reservation_type = reinterpret_cast<PyTypeObject*>(type.release().ptr());
}

}  // namespace pyecho::bindings
