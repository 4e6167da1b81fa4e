// The Python object that owns a batch's memory. It is the base of the arrays of the batch.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "core/memory/batch_pool.hpp"
#include "cuda/deferred_release.hpp"

namespace pyecho::bindings {

// Keeps leases that the consumer has dropped until its own copies to a device are done, which may still read the memory.
// Any thread may call all members. Only dropped() needs the GIL.
class CopiedLeases {
 public:
  // `copy_streams`: () -> (device, handle of the calling thread's current stream, handles of further streams or ()) for
  // each device that the consumer may copy batches to. A dropped lease ends after the copies on these streams. Once there
  // are further streams, they must not change or be destroyed.
  CopiedLeases(const cuda::Device& device, pybind11::object copy_streams)
      : release_(device), copy_streams_(std::move(copy_streams)) {}

  // Called when the last view of the batch was dropped.
  void dropped(Lease lease);
  // Ends the leases that can end.
  void poll() { release_.poll(); }
  // Returns the number of kept leases.
  [[nodiscard]] std::size_t kept() const { return release_.waiting(); }
  // Returns how many of them end only after an action of the consumer.
  [[nodiscard]] std::size_t held_back() const { return release_.held_back(); }

 private:
  std::vector<cuda::ConsumerStream> current_streams();

  cuda::DeferredRelease release_;
  pybind11::object copy_streams_;
  std::set<int> watched_;  // devices whose further streams are watched
};

// Returns a new capsule that holds the lease. When the capsule is destroyed, the lease ends, or passes to `keeper` if that
// is not null.
pybind11::object make_lease_object(Lease lease, const std::shared_ptr<CopiedLeases>& keeper);
// Returns the lease in such a capsule.
[[nodiscard]] const Lease& lease_of(const pybind11::object& object) noexcept;

}  // namespace pyecho::bindings
