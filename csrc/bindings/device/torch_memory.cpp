// pyecho._core.TorchFunctions and TorchMemory: device memory of PyTorch's, and tensors in it, by the C functions that
// PyTorch exports for compiled models.
//
// Methods of tensors give up the GIL, and so does the end of a tensor. Beside a thread of plain Python each time may cost
// 5 ms, the time after which Python switches threads. None of this does, but for new memory, and the end of memory that
// no tensor shares: PyTorch's allocator may wait for the device, which may wait for a callback in Python.
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/device/functions.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// They return 0 or an error. A tensor is a handle that has to be deleted.
struct TorchFunctions {
  using Delete = int(void* self);

  // `functions`: addresses, in the order of the members.
  TorchFunctions(const std::array<std::uintptr_t, 7>& functions, py::object to_handle, py::object to_tensors)
      : handle_of(std::move(to_handle)), tensors_of(std::move(to_tensors)) {
    point(functions, empty_strided, view_dtype, reinterpret, new_tensor_handle, get_data_ptr, delete_tensor_object,
          copy);
  }

  int (*empty_strided)(std::int64_t axes, const std::int64_t* shape, const std::int64_t* strides, std::int32_t dtype,
                       std::int32_t device_type, std::int32_t device, void** made) = nullptr;
  int (*view_dtype)(void* self, std::int32_t dtype, void** made) = nullptr;
  int (*reinterpret)(void* self, std::int64_t axes, const std::int64_t* shape, const std::int64_t* strides,
                     std::int64_t offset, void** made) = nullptr;
  int (*new_tensor_handle)(void* self, void** made) = nullptr;
  int (*get_data_ptr)(void* self, void** address) = nullptr;
  Delete* delete_tensor_object = nullptr;
  int (*copy)(void* to, void* from, std::int32_t non_blocking) = nullptr;
  py::object handle_of;   // tensor -> capsule with a handle
  py::object tensors_of;  // list of such capsules, whose handles it deletes -> list of tensors
};

using Functions = std::shared_ptr<TorchFunctions>;
using Handle = std::unique_ptr<void, TorchFunctions::Delete*>;

void check(int error) {
  if (error != 0) {
    raise(PyExc_RuntimeError, "a function of PyTorch's for tensors has failed; it has printed why");
  }
}

class TorchMemory {
 public:
  TorchMemory(Functions functions, void* handle) : functions_(std::move(functions)), own_(owner_of(handle)) {}
  TorchMemory(const Functions& functions, const py::object& tensor)
      : TorchMemory(functions, PyCapsule_GetPointer(functions->handle_of(tensor).ptr(), nullptr)) {}
  // Gives up the GIL if this may be what frees the memory: another thread may have the allocator's lock meanwhile.
  ~TorchMemory() {
    GilRelease gil(own_ != nullptr && !is_shared_);
    own_.reset();
    gil.take_back();
  }
  TorchMemory(const TorchMemory&) = delete;
  TorchMemory& operator=(const TorchMemory&) = delete;

  // Number of a dtype; shape, strides and offset, in elements.
  using Part = std::tuple<std::int32_t, std::vector<std::int64_t>, std::vector<std::int64_t>, std::int64_t>;

  // Returns new tensors in this memory, which are no views of each other.
  py::object parts(const std::vector<Part>& parts) {
    std::vector<std::pair<std::int32_t, Handle>> views;
    std::vector<Handle> made;
    for (const auto& [dtype, shape, strides, offset] : parts) {
      void* handle = nullptr;
      if (views.empty() || views.back().first != dtype) {
        check(functions_->view_dtype(own_.get(), dtype, &handle));
        views.emplace_back(dtype, owner_of(handle));
      }
      check(functions_->reinterpret(views.back().second.get(), static_cast<std::int64_t>(shape.size()), shape.data(),
                                    strides.data(), offset, &handle));
      made.push_back(owner_of(handle));
    }
    is_shared_ = !made.empty();
    return tensors(std::move(made));
  }

  // Copies `count` numbers to other memory, as another dtype, on the caller's current stream. Dtypes and where the numbers
  // begin, in elements, here and there.
  void convert(const TorchMemory& to, std::int64_t count, std::array<std::int32_t, 2> dtypes,
               std::array<std::int64_t, 2> begins) const {
    const auto numbers = [&](const TorchMemory& memory, std::size_t side) {
      constexpr std::int64_t kStride = 1;
      void* handle = nullptr;
      check(functions_->view_dtype(memory.own_.get(), dtypes.at(side), &handle));
      const Handle view = owner_of(handle);
      check(functions_->reinterpret(view.get(), 1, &count, &kStride, begins.at(side), &handle));
      return owner_of(handle);
    };
    const Handle from = numbers(*this, 0);
    check(functions_->copy(numbers(to, 1).get(), from.get(), 1));
  }

  // Returns a new tensor of the bytes of this memory.
  [[nodiscard]] py::object tensor() const {
    void* handle = nullptr;
    check(functions_->new_tensor_handle(own_.get(), &handle));
    std::vector<Handle> made;
    made.push_back(owner_of(handle));
    return tensors(std::move(made))[py::int_(0)];
  }

  [[nodiscard]] std::uintptr_t address() const {
    void* address = nullptr;
    check(functions_->get_data_ptr(own_.get(), &address));
    return reinterpret_cast<std::uintptr_t>(address);
  }

  // True if tensors that were made of this memory outlive this object.
  [[nodiscard]] bool is_shared() const noexcept { return is_shared_; }
  void set_shared(bool shared) noexcept { is_shared_ = shared; }

 private:
  [[nodiscard]] Handle owner_of(void* handle) const noexcept { return {handle, functions_->delete_tensor_object}; }

  [[nodiscard]] py::object tensors(std::vector<Handle> handles) const {
    py::list capsules(handles.size());
    for (std::size_t i = 0; i < handles.size(); ++i) {
      capsules[i] = owned(PyCapsule_New(handles[i].get(), nullptr, nullptr));
    }
    for (Handle& handle : handles) {
      std::ignore = handle.release();
    }
    return call_python([&] { return functions_->tensors_of(capsules); });
  }

  Functions functions_;
  Handle own_;  // of bytes
  bool is_shared_ = false;
};

// Returns so much memory so many times, of the caller's current stream. Gives up the GIL once. Fewer if there is no more.
std::vector<std::unique_ptr<TorchMemory>> new_memory(const Functions& functions, std::size_t count,
                                                     std::int64_t size_bytes, std::int32_t dtype,
                                                     std::int32_t device_type, std::int32_t device) {
  std::vector<std::unique_ptr<TorchMemory>> made;
  std::vector<void*> handles(count);
  std::size_t found = 0;
  without_gil(true, [&] {
    constexpr std::int64_t kStride = 1;
    while (found < count &&
           functions->empty_strided(1, &size_bytes, &kStride, dtype, device_type, device, &handles[found]) == 0) {
      ++found;
    }
    return found;
  });
  made.reserve(found);
  for (std::size_t i = 0; i < found; ++i) {
    made.push_back(std::make_unique<TorchMemory>(functions, handles[i]));
  }
  return made;
}

}  // namespace

void register_torch_memory(py::module_& module) {
  py::class_<TorchFunctions, std::shared_ptr<TorchFunctions>>(module, "TorchFunctions", "C functions of PyTorch.")
      .def(py::init<const std::array<std::uintptr_t, 7>&, py::object, py::object>(), py::arg("functions"),
           py::arg("handle_of"), py::arg("tensors_of"))
      .def("new_memory", &new_memory, py::arg("count"), py::arg("size_bytes"), py::arg("dtype"), py::arg("device_type"),
           py::arg("device"));
  py::class_<TorchMemory>(module, "TorchMemory", "Memory of PyTorch's.")
      .def(py::init<const Functions&, const py::object&>(), py::arg("functions"), py::arg("tensor"))
      .def("parts", &TorchMemory::parts, py::arg("parts"))
      .def("convert", &TorchMemory::convert, py::arg("to"), py::arg("count"), py::arg("dtypes"), py::arg("begins"))
      .def("tensor", &TorchMemory::tensor)
      .def_property("is_shared", &TorchMemory::is_shared, &TorchMemory::set_shared)
      .def_property_readonly("address", &TorchMemory::address);
}

}  // namespace pyecho::bindings
