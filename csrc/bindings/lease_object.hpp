// The Python object that owns a batch's memory: the base of the arrays that show it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>

#include "core/memory/batch_pool.hpp"

namespace pyecho::bindings {

// Keeps leases that the consumer has dropped, where something that pyecho does not see may still read the memory. All
// members may be called by any thread; dropped() and nothing else needs the GIL.
class LeaseKeeper {
 public:
  LeaseKeeper() = default;
  virtual ~LeaseKeeper() = default;
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // The last view of this batch was dropped.
  virtual void dropped(Lease lease) = 0;
  // Ends leases that can end.
  virtual void poll() = 0;
  // Leases that it keeps; of these, those that end only after something that the consumer has to do.
  [[nodiscard]] virtual std::size_t kept() const = 0;
  [[nodiscard]] virtual std::size_t held_back() const = 0;
};

// A new object that holds the lease; when its last reference goes, the memory may be filled again, or `keeper` (null:
// none) decides when.
pybind11::object make_lease_object(Lease lease, const std::shared_ptr<LeaseKeeper>& keeper);
// The lease in such an object.
[[nodiscard]] const Lease& lease_of(const pybind11::object& object) noexcept;

void register_lease(pybind11::module_& module);

}  // namespace pyecho::bindings
