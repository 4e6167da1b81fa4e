#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/address.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/pinning.hpp"
#include "cuda/transfer_engine.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace pyecho::bindings {
namespace {

// All members need the GIL; waits release it.
class TransferEngineObject {
 public:
  TransferEngineObject(int device, unsigned depth, unsigned kept) {
    engine_ = without_gil(
        true, [&] { return std::make_unique<cuda::TransferEngine>(cuda::Device::get(device), depth, kept); });
  }
  ~TransferEngineObject() {
    without_gil(true, [&] {
      engine_.reset();
      return true;
    });
  }
  TransferEngineObject(const TransferEngineObject&) = delete;
  TransferEngineObject& operator=(const TransferEngineObject&) = delete;

  using PythonCopy = std::tuple<std::uint64_t, std::uintptr_t, std::size_t>;

  std::shared_ptr<const cuda::Transfer> start(const std::vector<PythonCopy>& copies, py::object source) {
    std::vector<cuda::Copy> native;
    native.reserve(copies.size());
    for (const auto& [to, from, size_bytes] : copies) {
      native.push_back({.to = to, .from = static_cast<const std::byte*>(pointer(from)), .size_bytes = size_bytes});
    }
    const std::shared_ptr<void> kept(source.release().ptr(), drop_without_gil);
    return without_gil(true, [&] { return engine_->start(native, kept); });
  }
  std::shared_ptr<const cuda::Transfer> mark() { return engine_->mark(); }

  [[nodiscard]] std::uint64_t bytes() const { return engine_->bytes(); }
  [[nodiscard]] std::uint64_t staged_bytes() const { return engine_->staged_bytes(); }
  [[nodiscard]] std::uintptr_t stream() const { return reinterpret_cast<std::uintptr_t>(engine_->device().stream()); }

 private:
  // Drops a reference, in a thread that need not have the GIL.
  static void drop_without_gil(void* object) noexcept {
    ParkIfKilled park;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(static_cast<PyObject*>(object));
    PyGILState_Release(state);
    park.passed();
  }

  std::unique_ptr<cuda::TransferEngine> engine_;
};

void translate(std::exception_ptr thrown) {  // NOLINT(performance-unnecessary-value-param): pybind11's signature
  try {
    if (thrown) {
      std::rethrow_exception(thrown);
    }
  } catch (const cuda::CudaError& error) {
    const py::object object = py::handle(errors().cuda_error)(error.what());
    object.attr("code") = error.code();
    object.attr("name") = error.name();
    object.attr("call") = error.call();
    PyErr_SetObject(errors().cuda_error, object.ptr());
  }
}

py::dict driver_info() {
  const cuda::Driver& driver = cuda::Driver::get();
  return py::dict("available"_a = driver.ready(), "explanation"_a = driver.explanation(),
                  "version"_a = driver.version(), "device_count"_a = driver.device_count());
}

}  // namespace

void register_cuda(py::module_& module) {
  py::register_exception_translator(translate);

  module.def("cuda_driver_info", &driver_info,
             "Describe the CUDA driver: available, explanation (why not), version, device_count. Loads it.");
  module.def("cuda_active_devices", &cuda::active_devices,
             "The numbers of the devices on which this process has a context.");
  module.def(
      "cuda_device_name", [](int device) { return cuda::Device::get(device).name(); }, py::arg("device"),
      "The name of a device. Raises CudaError.");

  module.def(
      "cuda_pinning_seconds",
      [](int device, std::size_t size_bytes) {
        const py::gil_scoped_release released;
        const auto pinning = std::make_shared<cuda::Pinning>(cuda::Device::get(device), true);
        const HostMemory memory(size_bytes, pinning->policy());
        return static_cast<double>(pinning->pinning_ns()) * 1e-9;
      },
      py::arg("device"), py::arg("size_bytes"),
      "Measure the time to pin this much memory, once it has been touched. Raises CudaError, MemoryError.");

  module.def(
      "cuda_relax_capture",
      [] {
        const cuda::Driver& driver = cuda::Driver::get();
        driver.require();
        int mode = cuda::kCaptureModeRelaxed;
        driver.call(&cuda::DriverApi::thread_exchange_capture_mode, &mode);
      },
      "Keep later calls of this thread from disturbing a CUDA graph that another thread captures. Raises CudaError.");

  py::class_<cuda::Pinning, std::shared_ptr<cuda::Pinning>>(module, "Pinning",
                                                            "Pins memory for a device, and reports the outcome.")
      .def(py::init([](int device, bool required) {
             return std::make_shared<cuda::Pinning>(cuda::Device::get(device), required);
           }),
           py::kw_only(), py::arg("device"), py::arg("required"))
      .def_property_readonly("failure", &cuda::Pinning::failure, "Why memory stayed pageable, or ''.");

  py::class_<cuda::Transfer, std::shared_ptr<cuda::Transfer>>(module, "Transfer", "Copies that were started together.")
      .def(
          "wait_on",
          [](const cuda::Transfer& self, std::uintptr_t stream) {
            self.wait_on(static_cast<cuda::StreamHandle>(pointer(stream)));
          },
          py::arg("stream"),
          "wait_on(stream)\n\nMake later work on this CUDA stream wait for the copies. Never blocks.");

  py::class_<TransferEngineObject>(module, "TransferEngine", "Asynchronous copies to a device.")
      .def(py::init<int, unsigned, unsigned>(), py::kw_only(), py::arg("device"), py::arg("depth"), py::arg("kept"))
      .def("start", &TransferEngineObject::start, py::arg("copies"), py::arg("source"),
           "start(copies, source)\n\n"
           "Issue copies, each (device address, host address, bytes), and keep `source` until they are done.")
      .def("mark", &TransferEngineObject::mark,
           "mark()\n\nReturn a transfer that is done once all work queued so far on pyecho's stream is done.")
      .def_property_readonly("bytes", &TransferEngineObject::bytes)
      .def_property_readonly("staged_bytes", &TransferEngineObject::staged_bytes)
      .def_property_readonly("stream", &TransferEngineObject::stream, "The handle of pyecho's stream on the device.");
}

}  // namespace pyecho::bindings
