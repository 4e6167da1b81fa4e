// The Python object that owns a batch's memory. It is the base of the arrays of the batch.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>

#include "core/memory/batch_pool.hpp"

namespace pyecho::bindings {

// Keeps leases that the consumer has dropped while something outside pyecho may still read the memory. Any thread may call
// all members. Only dropped() needs the GIL.
class LeaseKeeper {
 public:
  LeaseKeeper() = default;
  virtual ~LeaseKeeper() = default;
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // Called when the last view of the batch was dropped.
  virtual void dropped(Lease lease) = 0;
  // Ends the leases that can end.
  virtual void poll() = 0;
  // Returns the number of kept leases.
  [[nodiscard]] virtual std::size_t kept() const = 0;
  // Returns how many of them end only after an action of the consumer.
  [[nodiscard]] virtual std::size_t held_back() const = 0;
};

// Returns a new object that holds the lease. When the object is destroyed, the lease ends, or passes to `keeper` if that
// is not null.
pybind11::object make_lease_object(Lease lease, const std::shared_ptr<LeaseKeeper>& keeper);
// Returns the lease in such an object.
[[nodiscard]] const Lease& lease_of(const pybind11::object& object) noexcept;

void register_lease(pybind11::module_& module);

}  // namespace pyecho::bindings
