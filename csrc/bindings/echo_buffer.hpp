// pyecho._core.EchoBuffer: the native stage of example echoing, from Python items to batches of arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/item_view.hpp"
#include "bindings/lease_object.hpp"
#include "bindings/reference_table.hpp"
#include "bindings/stage.hpp"
#include "bindings/structure.hpp"
#include "bindings/waiting.hpp"
#include "core/stage/echo_buffer.hpp"

namespace pyecho::bindings {

// Python callables that convert another library's arrays; None for NumPy.
struct Adapter {
  pybind11::object to_array;    // leaf -> ndarray, or None if it is not an array
  pybind11::object from_array;  // (ndarray, leaf number) -> array for the consumer
  pybind11::object info_type;   // (source_index, use) -> the info of a batch
  // size_bytes -> (address, owner) of memory for a batch, which the batch's arrays have as their base; None: pyecho's own
  // memory, which is filled again once the arrays are dropped.
  pybind11::object new_memory;
};

// The timeout of a producer. `progress` is appended to the message of a PutTimeout.
struct Timeout {
  explicit Timeout(std::optional<double> timeout_s)
      : seconds(timeout_s.value_or(0)), deadline(deadline_after(timeout_s)) {}
  double seconds;
  Deadline deadline;
  std::string progress;
};

// All members need the GIL; waits and long copies release it.
class EchoBufferObject final : public Stage {
 public:
  // `name`: see Stage. `batched`: items of the source are batches, and their rows are the examples.
  EchoBufferObject(std::string name, std::shared_ptr<Structure> structure, EchoBufferConfig config, bool batched,
                   Adapter adapter);

  void put(pybind11::handle example, std::optional<double> timeout_s);
  void put_batch(pybind11::handle batch, std::optional<double> timeout_s);
  // Reserves a slot to write to. Raises PutTimeout, Closed.
  Reservation reserve(const Timeout& timeout);
  // Returns new writable arrays on the slot, with `owner` as their base.
  [[nodiscard]] std::vector<pybind11::object> slot_views(Reservation reservation, pybind11::handle owner) const;

  void close() override { core_->close(); }
  [[nodiscard]] bool at_end() const override { return core_->at_end(); }
  [[nodiscard]] pybind11::dict stats() const override;
  int traverse(visitproc visit, void* arg) const override;
  void clear() override;

  [[nodiscard]] const std::shared_ptr<EchoBuffer>& core() const noexcept { return core_; }
  [[nodiscard]] const Structure& structure() const noexcept { return *structure_; }
  [[nodiscard]] bool has_references() const noexcept { return has_references_; }

 protected:
  void hold(const pybind11::object& item) override;
  [[nodiscard]] bool holds_item() const override { return held_.view != nullptr; }
  Outcome put_held(bool wait, std::uint64_t& put) override;
  Outcome mark_pass_end(Deadline deadline) override;
  Outcome try_emit(PyObject*& emission) override;
  Outcome wait(Deadline slice) override;
  [[nodiscard]] std::uint64_t needed() const override { return core_->needed(); }
  void begin_core(std::uint64_t epoch, std::uint64_t items) override;
  void stop_core() override { core_->stop(); }
  [[nodiscard]] bool stopped() const override { return core_->stopped(); }
  [[noreturn]] void raise_for(Outcome outcome) const override;

 private:
  // An item, and its next row.
  struct Rows {
    std::shared_ptr<ItemView> view;  // null: none; shared, because another thread may stop the stage during a copy
    std::size_t next = 0;
  };

  [[nodiscard]] ItemKind item_kind() const noexcept { return batched_ ? ItemKind::kBatch : ItemKind::kExample; }
  Outcome put_rows(const ItemView& view, std::size_t& row, Timeout& timeout, bool wait);
  void copy_rows(const ItemView& view, std::size_t row, std::span<const Reservation> reservations);
  void put_references(const ItemView& view, std::size_t row, std::span<const Reservation> reservations);
  pybind11::object make_batch(const Lease& lease, pybind11::handle owner);
  [[nodiscard]] HostMemory new_memory(std::size_t size_bytes) const;
  pybind11::object array_leaf(std::size_t index, std::byte* data, std::uint32_t rows, pybind11::handle owner) const;
  [[nodiscard]] std::span<const ReferenceTable::Entry> entries_of(const Lease& lease) const noexcept;
  [[nodiscard]] pybind11::list reference_list(std::size_t position,
                                              std::span<const ReferenceTable::Entry> entries) const;
  void release_references(const Lease& lease);
  void warn_of_growth();
  [[noreturn]] void raise_exhausted() const;
  [[noreturn]] void raise_timeout(const Timeout& timeout) const;

  std::shared_ptr<Structure> structure_;
  Adapter adapter_;
  const bool batched_;
  const bool has_references_;
  EchoBufferConfig config_;
  std::shared_ptr<EchoBuffer> core_;
  ReferenceTable references_;
  Rows held_;                               // the item that was read and is not completely put
  Lease acquired_;                          // consumer only: acquired by wait() for try_emit()
  pybind11::object pending_;                // the lease of a batch whose delivery failed, for the next attempt
  bool warned_of_growth_ = false;
};

void register_echo_buffer(pybind11::module_& module);

}  // namespace pyecho::bindings
