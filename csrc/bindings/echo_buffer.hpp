// pyecho._core.EchoBuffer: the native stage of example echoing, with Python's items on one side and batches on the other.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/item_view.hpp"
#include "bindings/lease_object.hpp"
#include "bindings/reference_table.hpp"
#include "bindings/structure.hpp"
#include "bindings/waiting.hpp"
#include "core/stage/echo_buffer.hpp"
#include "cuda/deferred_release.hpp"
#include "cuda/pinning.hpp"

namespace pyecho::bindings {

// Python callables by which an adapter speaks another library's arrays; none for NumPy.
struct Adapter {
  pybind11::object to_array;    // leaf -> ndarray, or None if it is not an array
  pybind11::object from_array;  // (ndarray, leaf number) -> what the consumer gets
  pybind11::object info_type;   // (source_index, use) -> the info of a batch
};

// Where batches live that a device may read.
struct DeviceMemory {
  std::shared_ptr<cuda::Pinning> pinning;  // null: pageable memory
  // () -> (device, handle of the calling thread's current stream, handles of further streams or ()) for each device that
  // the consumer may copy batches to, so that a batch that was dropped is not filled before those copies are done; the
  // further streams must not change, once there are any, nor ever be destroyed. None if nobody copies.
  pybind11::object copy_streams;
};

// How long a producer is willing to wait, and what to add to the message when it was too long.
struct Timeout {
  explicit Timeout(std::optional<double> timeout_s)
      : seconds(timeout_s.value_or(0)), deadline(deadline_after(timeout_s)) {}
  double seconds;
  Deadline deadline;
  std::string progress;
};

// All members with the GIL held; waits and long copies release it.
class EchoBufferObject {
 public:
  EchoBufferObject(std::shared_ptr<Structure> structure, EchoBufferConfig config, bool with_info, Adapter adapter,
                   const DeviceMemory& memory);

  void put(pybind11::handle example, std::optional<double> timeout_s);
  void put_batch(pybind11::handle batch, std::optional<double> timeout_s);
  void close() { core_->close(); }
  // As close(), and the consumer receives `error` once everything before it has been emitted.
  void fail(pybind11::object error);
  // Abandons everything.
  void stop();

  // The next batch as a new reference, or null at the end of input. Raises what fail() was given, Closed, BufferExhausted.
  PyObject* next_reference();
  [[nodiscard]] bool& busy() noexcept { return busy_; }

  // A slot to write to; raises PutTimeout, Closed.
  Reservation reserve(const Timeout& timeout);
  // New writable arrays on the slot, whose base is `owner`.
  std::vector<pybind11::object> slot_views(Reservation reservation, pybind11::handle owner) const;

  [[nodiscard]] const std::shared_ptr<EchoBuffer>& core() const noexcept { return core_; }
  [[nodiscard]] const Structure& structure() const noexcept { return *structure_; }
  [[nodiscard]] bool has_references() const noexcept { return has_references_; }

  [[nodiscard]] pybind11::dict stats() const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  Outcome acquire(Lease& lease);
  void put_rows(const ItemView& source, std::size_t row, const Reservation* reservations, std::size_t count);
  void abandon(const Reservation* reservations, std::size_t count);
  pybind11::object make_batch(Lease lease);
  pybind11::object array_leaf(std::size_t index, std::byte* data, std::uint32_t rows, pybind11::handle owner) const;
  pybind11::list reference_list(std::size_t index, const std::vector<pybind11::tuple>& rows) const;
  void warn_of_growth(Lease& lease);
  [[noreturn]] void raise_exhausted() const;

  std::shared_ptr<Structure> structure_;
  Adapter adapter_;
  bool with_info_;
  bool has_references_;
  EchoBufferConfig config_;
  std::shared_ptr<EchoBuffer> core_;
  ReferenceTable references_;
  pybind11::object failure_ = pybind11::none();
  bool busy_ = false;                                  // a consumer is inside next_reference()
  std::shared_ptr<cuda::Pinning> pinning_;             // null: pageable memory
  std::shared_ptr<cuda::DeferredRelease> retirement_;  // null: leases end when they are dropped
  std::shared_ptr<const Retire> retire_;
  Lease pending_;  // a batch whose delivery a warning turned into an error interrupted
  bool warned_of_growth_ = false;
  bool warned_of_pages_ = false;  // that they are pageable
};

void register_echo_buffer(pybind11::module_& module);

}  // namespace pyecho::bindings
