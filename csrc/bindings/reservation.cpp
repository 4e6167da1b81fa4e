#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/echo_buffer.hpp"
#include "bindings/errors.hpp"
#include "bindings/registration.hpp"
#include "bindings/section.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

class ReservationObject {
 public:
  ReservationObject(std::shared_ptr<EchoBufferObject> buffer, std::optional<double> timeout_s)
      : buffer_(std::move(buffer)), core_(buffer_->core()), reservation_(buffer_->reserve(timeout_s)) {}
  // Aborts an open reservation, because it would hold up all later ones.
  ~ReservationObject() {
    if (open_) {
      core_->abort(reservation_);
    }
  }
  ReservationObject(const ReservationObject&) = delete;
  ReservationObject& operator=(const ReservationObject&) = delete;

  // Returns the nest of arrays on the slot. They keep the buffer's memory alive through `self`.
  py::object views(const py::object& self) {
    const Section section(lock_);
    require_open("views");
    std::vector<py::object> arrays = buffer_->slot_views(reservation_, self);
    for (const py::object& array : arrays) {
      views_.emplace_back(py::weakref(array));
    }
    return buffer_->structure().unflatten(arrays);
  }

  // Commits the slot, or else aborts it.
  void finish(bool commit) {
    const Section section(lock_);
    require_open(commit ? "commit" : "abort");
    open_ = false;
    for (const py::object& reference : views_) {
      if (const py::object array = reference(); !array.is_none()) {
        PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
      }
    }
    views_.clear();
    if (commit) {
      core_->commit(reservation_);
    } else {
      core_->abort(reservation_);
    }
  }

 private:
  void require_open(const char* what) const {
    if (!open_) {
      raise(errors().closed, std::string("this reservation was committed or aborted, ") + what +
                                 " is no longer possible; reserve() another slot");
    }
  }

  [[no_unique_address]] SectionLock lock_;
  std::shared_ptr<EchoBufferObject> buffer_;
  std::shared_ptr<EchoBuffer> core_;  // whose slot it is: load_state_dict() may give the buffer another one
  Reservation reservation_;
  std::vector<py::object> views_;  // weak references, because the arrays refer to this object
  bool open_ = true;
};

}  // namespace

py::object make_reservation(std::shared_ptr<EchoBufferObject> buffer, std::optional<double> timeout_s) {
  if (buffer->has_references()) {
    raise(errors().config_error,
          "reserve() needs a spec of arrays and numbers, but this one has leaves that travel by reference; use put()");
  }
  return py::cast(std::make_shared<ReservationObject>(std::move(buffer), timeout_s));
}

void register_reservation(py::module_& module) {
  py::class_<ReservationObject, std::shared_ptr<ReservationObject>>(
      module, "Reservation",
      "A slot to write an example into; a context manager that commits, or aborts on an exception.")
      .def_property_readonly(
          "views", [](const py::object& self) { return self.cast<ReservationObject&>().views(self); },
          "New writable arrays on the slot, in the nest of the spec.")
      .def(
          "commit", [](ReservationObject& self) { self.finish(true); },
          "commit()\n\nHand the example over. The views become read-only.")
      .def(
          "abort", [](ReservationObject& self) { self.finish(false); },
          "abort()\n\nGive the slot back without an example.")
      .def("__enter__", [](const py::object& self) { return self.cast<ReservationObject&>().views(self); })
      .def(
          "__exit__",
          [](ReservationObject& self, const py::object& type, const py::object&, const py::object&) {
            self.finish(type.is_none());
          },
          py::arg("exc_type"), py::arg("exc"), py::arg("traceback"));
}

}  // namespace pyecho::bindings
