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

// Asks Python for the consumer's streams, and passes them on to the DeferredRelease. Needs the GIL.
class CopyStreams {
 public:
  CopyStreams(std::shared_ptr<cuda::DeferredRelease> release, py::object ask)
      : release_(std::move(release)), ask_(std::move(ask)) {}

  // Returns the current streams. Starts to watch the further streams of each device once there are any.
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
      PyErr_Clear();  // the library is shutting down; the default stream is waited for in any case
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
    release_->watch(device, streams);
  }

  std::shared_ptr<cuda::DeferredRelease> release_;
  py::object ask_;
  std::set<int> watched_;
};

class CopiedLeases final : public LeaseKeeper {
 public:
  CopiedLeases(const cuda::Device& device, const py::object& ask)
      : release_(std::make_shared<cuda::DeferredRelease>(device)), streams_(release_, ask) {}

  void dropped(Lease lease) override {
    const py::error_scope pending;  // the object may be destroyed while an exception propagates
    const std::vector<cuda::ConsumerStream> current = streams_.current();
    release_->poll();
    release_->retire(std::move(lease), current);
  }
  void poll() override { release_->poll(); }
  [[nodiscard]] std::size_t kept() const override { return release_->waiting(); }
  [[nodiscard]] std::size_t held_back() const override { return release_->held_back(); }

 private:
  std::shared_ptr<cuda::DeferredRelease> release_;
  CopyStreams streams_;
};

}  // namespace

std::shared_ptr<LeaseKeeper> keep_while_copied(const cuda::Device& device, const py::object& copy_streams) {
  return std::make_shared<CopiedLeases>(device, copy_streams);
}

}  // namespace pyecho::bindings
