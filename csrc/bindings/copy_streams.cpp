#include "bindings/copy_streams.hpp"

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/address.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Tells what a consumer says of its streams to the retirement, with the GIL.
class CopyStreams {
 public:
  CopyStreams(std::shared_ptr<cuda::DeferredRelease> retirement, py::object ask)
      : retirement_(std::move(retirement)), ask_(std::move(ask)) {}

  // Those that are current, and is told of the others.
  std::vector<cuda::ConsumerStream> current() {
    std::vector<cuda::ConsumerStream> streams;
    try {
      for (const py::handle each : py::list(ask_())) {
        const auto [ordinal, handle, others] = each.cast<std::tuple<int, std::uintptr_t, py::tuple>>();
        const cuda::Device& device = cuda::Device::get(ordinal);
        streams.push_back({.device = &device, .handle = stream_of(handle)});
        if (!others.empty() && !watched_.contains(ordinal)) {
          watch(device, others);
          watched_.insert(ordinal);
        }
      }
    } catch (const std::exception&) {
      PyErr_Clear();  // the library is on its way out: the default stream, then
    }
    return streams;
  }

 private:
  static cuda::StreamHandle stream_of(std::uintptr_t handle) {
    return static_cast<cuda::StreamHandle>(pointer(handle));
  }
  void watch(const cuda::Device& device, const py::tuple& handles) {
    std::vector<cuda::StreamHandle> streams;
    for (const py::handle handle : handles) {
      streams.push_back(stream_of(handle.cast<std::uintptr_t>()));
    }
    retirement_->watch(device, streams);
  }

  std::shared_ptr<cuda::DeferredRelease> retirement_;
  py::object ask_;
  std::set<int> watched_;
};

}  // namespace

std::shared_ptr<const Retire> retire_after_copies(const std::shared_ptr<cuda::DeferredRelease>& retirement,
                                                  const py::object& copy_streams) {
  const auto streams = std::make_shared<CopyStreams>(retirement, copy_streams);
  return std::make_shared<const Retire>([retirement, streams](Lease lease) {
    const py::error_scope pending;  // the object may die while an exception is on its way
    const std::vector<cuda::ConsumerStream> current = streams->current();
    retirement->poll();
    retirement->retire(std::move(lease), current);
  });
}

}  // namespace pyecho::bindings
