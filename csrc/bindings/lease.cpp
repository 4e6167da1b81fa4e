#include "bindings/lease.hpp"

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

#include "bindings/address.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

struct KeptLease {
  Lease lease;
  std::shared_ptr<CopiedLeases> keeper;  // null: the lease ends with the object
};

void destroy_lease(PyObject* capsule) {
  const std::unique_ptr<KeptLease> kept(static_cast<KeptLease*>(PyCapsule_GetPointer(capsule, nullptr)));
  if (kept->keeper) {
    const py::error_scope pending;  // the capsule may be destroyed while an exception propagates
    kept->keeper->dropped(std::move(kept->lease));
  }
}

cuda::StreamHandle stream_of(std::uintptr_t handle) { return static_cast<cuda::StreamHandle>(pointer(handle)); }

}  // namespace

void CopiedLeases::dropped(Lease lease) {
  const std::vector<cuda::ConsumerStream> streams = current_streams();
  release_.poll();
  release_.retire(std::move(lease), streams);
}

// Returns the current streams. Starts to watch the further streams of each device once there are any.
std::vector<cuda::ConsumerStream> CopiedLeases::current_streams() {
  std::vector<cuda::ConsumerStream> streams;
  try {
    for (const py::handle each : py::list(copy_streams_())) {
      const auto [ordinal, current, others] = each.cast<std::tuple<int, std::uintptr_t, py::tuple>>();
      const cuda::Device& device = cuda::Device::get(ordinal);
      streams.push_back({.device = &device, .handle = stream_of(current)});
      if (!others.empty() && !watched_.contains(ordinal)) {
        std::vector<cuda::StreamHandle> further;
        for (const py::handle handle : others) {
          further.push_back(stream_of(handle.cast<std::uintptr_t>()));
        }
        release_.watch(device, further);
        watched_.insert(ordinal);
      }
    }
  } catch (const std::exception&) {
    PyErr_Clear();  // the library is shutting down; the default stream is waited for in any case
  }
  return streams;
}

py::object make_lease_object(Lease lease, const std::shared_ptr<CopiedLeases>& keeper) {
  auto kept = std::make_unique<KeptLease>(KeptLease{.lease = std::move(lease), .keeper = keeper});
  PyObject* const capsule = PyCapsule_New(kept.get(), nullptr, destroy_lease);
  if (capsule == nullptr) {
    throw py::error_already_set();
  }
  std::ignore = kept.release();  // the capsule's
  return py::reinterpret_steal<py::object>(capsule);
}

const Lease& lease_of(const py::object& object) noexcept {
  return static_cast<const KeptLease*>(PyCapsule_GetPointer(object.ptr(), nullptr))->lease;
}

}  // namespace pyecho::bindings
