// pyecho._core.Runtime and Uploads: the functions and the stream with which batches are sent to a device.
#include "core/stage/uploads.hpp"

#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "bindings/device/functions.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

void* handle(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

Uploads::Runtime make_runtime(const std::array<std::uintptr_t, 6>& functions) {
  Uploads::Runtime runtime{};
  point(functions, runtime.set_device, runtime.exchange_capture_mode, runtime.wait_event, runtime.copy, runtime.record,
        runtime.query);
  return runtime;
}

// Address, size in bytes, and where it begins in the block.
using Part = std::tuple<std::uintptr_t, std::size_t, std::size_t>;

// Copies parts to a block, without the GIL if they are large.
void pack(std::uintptr_t to, const std::vector<Part>& parts) {
  std::size_t total = 0;
  for (const auto& [address, size_bytes, begin] : parts) {
    total += size_bytes;
  }
  without_gil(total >= kGilFreeBytes, [&] {
    for (const auto& [address, size_bytes, begin] : parts) {
      if (size_bytes > 0) {
        std::memcpy(handle(to + begin), handle(address), size_bytes);
      }
    }
    return 0;
  });
}

}  // namespace

void register_uploads(py::module_& module) {
  // The methods keep the GIL, as PyTorch's do not: giving it up may cost the consumer 5 ms.
  py::class_<Uploads::Runtime>(module, "Runtime", "Functions of CUDA's runtime, for streams of the current device.")
      .def(py::init(&make_runtime), py::arg("functions"))
      .def(
          "wait",
          [](const Uploads::Runtime& runtime, std::uintptr_t stream, std::uintptr_t event) {
            return runtime.wait_event(handle(stream), handle(event), 0) == 0;
          },
          py::arg("stream"), py::arg("event"))
      .def(
          "record",
          [](const Uploads::Runtime& runtime, std::uintptr_t event, std::uintptr_t stream) {
            return runtime.record(handle(event), handle(stream)) == 0;
          },
          py::arg("event"), py::arg("stream"))
      .def(
          "copy",
          [](const Uploads::Runtime& runtime, std::uintptr_t to, std::uintptr_t from, std::size_t size_bytes,
             std::uintptr_t stream) {
            return runtime.copy(handle(to), handle(from), size_bytes, Uploads::kHostToDevice, handle(stream)) == 0;
          },
          py::arg("to"), py::arg("source"), py::arg("size_bytes"), py::arg("stream"))
      .def(
          "passed",
          [](const Uploads::Runtime& runtime, std::uintptr_t event) { return runtime.query(handle(event)) == 0; },
          py::arg("event"));
  module.def("pack", &pack, py::arg("to"), py::arg("parts"));
  py::class_<Uploads, std::shared_ptr<Uploads>>(module, "Uploads", "Copies of batches to a device.")
      .def(py::init([](const Uploads::Runtime& runtime, int device, std::uintptr_t stream) {
             return std::make_shared<Uploads>(runtime, device, handle(stream));
           }),
           py::arg("runtime"), py::arg("device"), py::arg("stream"))
      .def_property_readonly("sent_bytes", &Uploads::sent_bytes);
}

}  // namespace pyecho::bindings
