#include "bindings/cuda.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/address.hpp"
#include "bindings/errors.hpp"
#include "bindings/waiting.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/pinning.hpp"
#include "cuda/transfer_engine.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Python objects that native code has released, kept until a thread with the GIL destroys them.
class Graveyard {
 public:
  // Returns a handle on `object` that may be dropped without the GIL.
  static std::shared_ptr<void> keep(const std::shared_ptr<Graveyard>& graveyard, py::object object) {
    return {object.release().ptr(), [graveyard](void* dead) {
              const std::scoped_lock lock(graveyard->mutex_);
              graveyard->dead_.push_back(static_cast<PyObject*>(dead));
            }};
  }
  // Destroys the released objects. Needs the GIL.
  void bury() {
    std::vector<PyObject*> dead;
    {
      const std::scoped_lock lock(mutex_);
      dead.swap(dead_);
    }
    for (PyObject* const object : dead) {
      Py_DECREF(object);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<PyObject*> dead_;
};

// All members need the GIL; waits release it.
class TransferEngineObject {
 public:
  TransferEngineObject(int device, unsigned depth, unsigned kept) {
    if (depth < 1) {
      raise(errors().config_error, "depth must be at least 1, got 0");
    }
    without_gil([&] { engine_ = std::make_unique<cuda::TransferEngine>(cuda::Device::get(device), depth, kept); });
  }
  ~TransferEngineObject() {
    without_gil([&] { engine_.reset(); });
    graveyard_->bury();
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
    std::shared_ptr<void> kept = Graveyard::keep(graveyard_, std::move(source));
    std::shared_ptr<const cuda::Transfer> transfer;
    act([&] { transfer = engine_->start(native, std::move(kept)); });
    return transfer;
  }
  std::shared_ptr<const cuda::Transfer> mark() { return engine_->mark(); }
  void poll() {
    act([&] { engine_->poll(); });
  }
  void drain() {
    act([&] { engine_->drain(); });
  }

  [[nodiscard]] const cuda::TransferEngine& engine() const noexcept { return *engine_; }

 private:
  template <class Action>
  static void without_gil(const Action& action) {
    std::exception_ptr failure;
    PyThreadState* const state = PyEval_SaveThread();
    try {
      action();
    } catch (...) {
      failure = std::current_exception();
    }
    take_gil(state);
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
  // Calls the engine, and destroys the sources it has released, even if the call fails.
  template <class Action>
  void act(const Action& action) {
    try {
      without_gil(action);
    } catch (...) {
      graveyard_->bury();
      throw;
    }
    graveyard_->bury();
  }

  std::shared_ptr<Graveyard> graveyard_ = std::make_shared<Graveyard>();
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
  py::dict info;
  info["available"] = driver.ready();
  info["explanation"] = driver.explanation();
  info["version"] = driver.version();
  info["device_count"] = driver.device_count();
  return info;
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
      .def_property_readonly("failure", &cuda::Pinning::failure, "Why memory stayed pageable, or ''.")
      .def_property_readonly("pinned_bytes", &cuda::Pinning::pinned_bytes)
      .def_property_readonly(
          "seconds", [](const cuda::Pinning& self) { return static_cast<double>(self.pinning_ns()) * 1e-9; },
          "Time that pinning took.");

  py::class_<cuda::Transfer, std::shared_ptr<cuda::Transfer>>(module, "Transfer", "Copies that were started together.")
      .def(
          "wait_on",
          [](const cuda::Transfer& self, std::uintptr_t stream) {
            self.wait_on(static_cast<cuda::StreamHandle>(pointer(stream)));
          },
          py::arg("stream"),
          "wait_on(stream)\n\nMake later work on this CUDA stream wait for the copies. Never blocks.")
      .def_property_readonly("done", &cuda::Transfer::done, "True if the engine has found the copies done.");

  py::class_<TransferEngineObject>(module, "TransferEngine", "Asynchronous copies to a device.")
      .def(py::init<int, unsigned, unsigned>(), py::kw_only(), py::arg("device"), py::arg("depth"), py::arg("kept"))
      .def("start", &TransferEngineObject::start, py::arg("copies"), py::arg("source"),
           "start(copies, source)\n\n"
           "Issue copies, each (device address, host address, bytes), and keep `source` until they are done.")
      .def("mark", &TransferEngineObject::mark,
           "mark()\n\nReturn a transfer that is done once all work queued so far on pyecho's stream is done.")
      .def("poll", &TransferEngineObject::poll, "poll()\n\nRelease the sources that the device is done with.")
      .def("drain", &TransferEngineObject::drain, "drain()\n\nWait until nothing is under way.")
      .def_property_readonly("bytes", [](const TransferEngineObject& self) { return self.engine().bytes(); })
      .def_property_readonly("staged_bytes",
                             [](const TransferEngineObject& self) { return self.engine().staged_bytes(); })
      .def_property_readonly(
          "stream",
          [](const TransferEngineObject& self) {
            return reinterpret_cast<std::uintptr_t>(self.engine().device().stream());
          },
          "The handle of pyecho's stream on the device.");
}

}  // namespace pyecho::bindings
