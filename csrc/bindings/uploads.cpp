// pyecho._core.Uploads: the functions and the stream with which batches are sent to a device.
#include "core/stage/uploads.hpp"

#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <memory>

#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

template <class Function>
void point(Function*& function, std::uintptr_t address) noexcept {
  function = reinterpret_cast<Function*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void* handle(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

std::shared_ptr<Uploads> make_uploads(const std::array<std::uintptr_t, 6>& functions, int device,
                                      std::uintptr_t stream) {
  Uploads::Runtime runtime{};
  point(runtime.set_device, functions[0]);
  point(runtime.exchange_capture_mode, functions[1]);
  point(runtime.wait_event, functions[2]);
  point(runtime.copy, functions[3]);
  point(runtime.record, functions[4]);
  point(runtime.query, functions[5]);
  return std::make_shared<Uploads>(runtime, device, handle(stream));
}

}  // namespace

void register_uploads(py::module_& module) {
  py::class_<Uploads, std::shared_ptr<Uploads>>(module, "Uploads", "Copies of batches to a device.")
      .def(py::init(&make_uploads), py::arg("functions"), py::arg("device"), py::arg("stream"))
      // Both keep the GIL, as PyTorch's methods do not: giving it up may cost the consumer 5 ms.
      .def(
          "wait",
          [](const Uploads& uploads, std::uintptr_t stream, std::uintptr_t event) {
            return uploads.wait(handle(stream), handle(event));
          },
          py::arg("stream"), py::arg("event"))
      .def(
          "record",
          [](const Uploads& uploads, std::uintptr_t event, std::uintptr_t stream) {
            return uploads.record(handle(event), handle(stream));
          },
          py::arg("event"), py::arg("stream"))
      .def_property_readonly("sent_bytes", &Uploads::sent_bytes);
}

}  // namespace pyecho::bindings
