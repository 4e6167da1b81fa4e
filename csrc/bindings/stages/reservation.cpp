// Slots that Python fills in place: ExampleStage.reserve().
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/registration.hpp"
#include "bindings/section.hpp"
#include "bindings/stages/buffer.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// A Python object around one of C++, of a plain type of CPython's: an instance of pybind11's, and calls of its methods,
// cost more than all else here.
template <class Held>
struct Holder {
  PyObject base;
  Held held;

  static py::handle make_type(const char* name, const char* text, PyMethodDef* methods, PyGetSetDef* members) {
    PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                           {Py_tp_doc, const_cast<char*>(text)},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, members},
                           {0, nullptr}};
    PyType_Spec spec{.name = name,
                     .basicsize = sizeof(Holder),
                     .itemsize = 0,
                     .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                     .slots = slots};
    type_ = reinterpret_cast<PyTypeObject*>(owned(PyType_FromSpec(&spec)).release().ptr());
    return reinterpret_cast<PyObject*>(type_);
  }
  // Throws what the constructor throws.
  template <class... Arguments>
  static py::object make(Arguments&&... arguments) {
    PyObject* const self = type_->tp_alloc(type_, 0);
    throw_if(self == nullptr);
    try {
      new (&of(self)) Held(std::forward<Arguments>(arguments)...);
    } catch (...) {
      free(self);
      throw;
    }
    return py::reinterpret_steal<py::object>(self);
  }
  static Held& of(PyObject* self) noexcept { return reinterpret_cast<Holder*>(self)->held; }

 private:
  static void dealloc(PyObject* self) {
    {
      const py::error_scope pending;
      of(self).~Held();
    }
    free(self);
  }
  static void free(PyObject* self) {
    type_->tp_free(self);
    Py_DECREF(type_);
  }

  static inline PyTypeObject* type_ = nullptr;
};

// A reserved slot. The arrays on it keep it. Aborts an open reservation at its end, because that would hold up all later
// ones.
class ReservedSlot {
 public:
  ReservedSlot(std::shared_ptr<ExampleStage> stage, std::optional<double> timeout_s, ExampleStage::Shapes of_shapes)
      : buffer(std::move(stage)),
        core(buffer->shared_core()),
        shapes(std::move(of_shapes)),
        arrays(shapes.size()),
        reservation(buffer->reserve(timeout_s)) {}
  ~ReservedSlot() {
    if (is_open) {
      core->abort(reservation);
    }
  }
  ReservedSlot(const ReservedSlot&) = delete;
  ReservedSlot& operator=(const ReservedSlot&) = delete;

  const std::shared_ptr<ExampleStage> buffer;
  const std::shared_ptr<EchoBuffer> core;  // whose slot it is: load_state_dict() may give the buffer another one
  const ExampleStage::Shapes shapes;
  std::vector<py::object> arrays;  // of the leaves of variable size; null until there are views
  const Reservation reservation;
  bool is_open = true;
};

class ReservationObject {
 public:
  explicit ReservationObject(py::object slot) : slot_object_(std::move(slot)) {}

  // Returns the nest of arrays on the slot.
  py::object views() {
    const Section section(lock_);
    ReservedSlot& slot = open_slot("views");
    std::vector<py::object> arrays = slot.buffer->slot_views(slot.reservation, slot_object_, slot.shapes, slot.arrays);
    views_.insert(views_.end(), arrays.begin(), arrays.end());
    return slot.buffer->structure().unflatten(arrays);
  }

  // Commits the slot, or else aborts it.
  template <bool kCommit>
  py::object finish() {
    const Section section(lock_);
    ReservedSlot& slot = open_slot(kCommit ? "commit" : "abort");
    if (kCommit) {
      slot.buffer->fill_variable(slot.reservation, slot.shapes, slot.arrays);
    }
    slot.is_open = false;
    for (const py::object& array : std::exchange(views_, {})) {
      PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
    }
    if (kCommit) {
      slot.core->input().commit(slot.reservation);
    } else {
      slot.core->abort(slot.reservation);
    }
    return py::none();
  }

 private:
  ReservedSlot& open_slot(const char* what) const {
    ReservedSlot& slot = Holder<ReservedSlot>::of(slot_object_.ptr());
    if (!slot.is_open) {
      raise(errors().closed, std::string("this reservation was committed or aborted, ") + what +
                                 " is no longer possible; reserve() another slot");
    }
    return slot;
  }

  [[no_unique_address]] SectionLock lock_;
  const py::object slot_object_;   // a Holder<ReservedSlot>
  std::vector<py::object> views_;  // to be made read-only
};

// Calls a method; `Unused` is what CPython passes besides.
template <auto kMethod, class Unused = PyObject>
PyObject* call(PyObject* self, Unused* /*unused*/) {
  try {
    return (Holder<ReservationObject>::of(self).*kMethod)().release().ptr();
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

PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};
PyGetSetDef no_members[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

py::object make_reservation(std::shared_ptr<ExampleStage> buffer, std::optional<double> timeout_s,
                            const py::dict& shapes) {
  if (buffer->structure().has_references()) {
    raise(errors().config_error,
          "reserve() needs a spec of arrays and numbers, but this one has leaves that travel by reference; use put()");
  }
  ExampleStage::Shapes checked = buffer->checked_shapes(shapes);
  return Holder<ReservationObject>::make(Holder<ReservedSlot>::make(std::move(buffer), timeout_s, std::move(checked)));
}

void register_reservation(py::module_& module) {
  Holder<ReservedSlot>::make_type("pyecho._core.ReservedSlot", "A reserved slot.", no_methods, no_members);
  module.attr("Reservation") = Holder<ReservationObject>::make_type(
      "pyecho._core.Reservation",
      "A slot to write an example into; a context manager that commits, or aborts on an exception.",
      reservation_methods, reservation_members);
}

}  // namespace pyecho::bindings
