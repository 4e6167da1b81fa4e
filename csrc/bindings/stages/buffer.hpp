// pyecho._core.ExampleStage: the native stage of example echoing, from Python items to batches of arrays.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/items/item_view.hpp"
#include "bindings/items/reference_table.hpp"
#include "bindings/items/structure.hpp"
#include "bindings/stages/py_stage.hpp"
#include "core/stage/batch_pool.hpp"
#include "core/stage/echo_buffer.hpp"

namespace pyecho::capi {
class Buffer;
}

namespace pyecho::bindings {

class NativeFeed;

// All members need the GIL and the stage's Section, see Stage. put(), reserve() and slot_views() need only the
// GIL, and several threads may be inside.
class ExampleStage final : public PyStage<ExampleStage> {
 public:
  // `spec`, `node_of`: see Structure. `name`: see Stage. `batched`: items of the source are batches, and their rows are
  // the examples. Python callables, or None:
  // - to_array: leaf -> ndarray, or None if it is not an array
  // - from_array: (ndarray, leaf number) -> array for the consumer
  // - ragged: what has `pads`, for each leaf the bytes of the element that pads it, or none, and `make`: (elements,
  //   padded or one after the other; shapes; leaf number) -> the rows of a ragged leaf for the consumer
  // - info_type: (source_index, use) -> the info of a batch
  // - new_memory: size_bytes -> (address, owner) of memory for a batch. The arrays of the batch have the owner as their
  //   base. None: pyecho's own memory, which is filled again once the arrays are dropped.
  // `rows`: for each leaf the Field of a row of a batch, and the Program that makes it of the leaf; None: its copy.
  // `uploads`: where batches are sent, an Uploads, or None. Then owners make the leaves of batches: see
  // pyecho.device.blocks.Block.
  ExampleStage(const pybind11::object& spec, const pybind11::object& node_of, const pybind11::object& config,
               std::string name, bool batched, pybind11::object to_array, pybind11::object from_array,
               pybind11::object info_type, pybind11::object new_memory, std::shared_ptr<Uploads> uploads,
               const pybind11::list& rows, const pybind11::object& ragged);
  // Stops the core, to which a capsule may refer for longer.
  ~ExampleStage() { core_->stop(); }
  ExampleStage(const ExampleStage&) = delete;
  ExampleStage& operator=(const ExampleStage&) = delete;
  // Returns where the region of each leaf begins in a batch.
  [[nodiscard]] std::vector<std::size_t> batch_offsets() const;

  // Copies an example, or each row of a batch, into slots. Raises SpecMismatch, PutTimeout, Closed.
  void put(pybind11::handle item, bool batched, std::optional<double> timeout_s);
  // Reserves a slot to write to. Raises PutTimeout, Closed.
  Reservation reserve(std::optional<double> timeout_s);
  // By leaf; empty if no leaf has a variable size.
  using Shapes = std::vector<std::vector<std::uint64_t>>;
  // Returns the shape that a dict has for each leaf of variable size, by name. Raises ConfigError, SpecMismatch.
  [[nodiscard]] Shapes checked_shapes(const pybind11::dict& shapes) const;
  // Returns new writable arrays on the slot, with `owner` as their base. A leaf of variable size has an array of its own
  // in `arrays`, because views may outlive the memory of an item; fill_variable() copies it into the slot.
  [[nodiscard]] std::vector<pybind11::object> slot_views(Reservation reservation, pybind11::handle owner,
                                                         const Shapes& shapes,
                                                         std::vector<pybind11::object>& arrays) const;
  void fill_variable(Reservation reservation, const Shapes& shapes, const std::vector<pybind11::object>& arrays) const;

  // -- For workers that fill slots in shared memory (slot_writer.cpp); one thread, which runs a WorkedPass --

  using Slots = std::vector<std::uint32_t>;
  // Returns at most so many slots (>= 1) and the ticket of the first, which the others follow; None if there is no room,
  // with `wait` only once paused. Raises Closed.
  pybind11::object reserve_slots(std::size_t most, bool wait);
  // Commits slots that workers have filled, in the order of their tickets, up to one whose item operations refuse.
  // `references`: of each slot the leaves that travel by reference. Returns how many were committed, and why not more; an
  // exception has committed none.
  pybind11::tuple commit_slots(const Slots& slots, std::uint64_t ticket, const pybind11::list& references);
  // Gives the slots back.
  void abort_slots(const Slots& slots, std::uint64_t ticket);
  // Returns the descriptor and size of the memory of all slots, and whether they are streamed.
  [[nodiscard]] pybind11::tuple shared_slots() const;

  // Returns the buffer for native producers, a PyCapsule (PYECHO_CAPSULE_NAME).
  [[nodiscard]] pybind11::object capsule();

  [[nodiscard]] const std::shared_ptr<EchoBuffer>& shared_core() const noexcept { return core_; }
  [[nodiscard]] const Structure& structure() const noexcept { return structure_; }

  // Gives no warning when batches are added: the consumer's library keeps them for a while.
  void expect_growth() { warned_of_growth_ = true; }

  // -- For PyStage --

  [[nodiscard]] EchoBuffer& core() const { return *core_; }
  [[nodiscard]] bool at_end() const { return core_->at_end(); }
  void hold(const pybind11::object& item);
  Outcome put_held(bool wait, std::size_t& row);
  std::optional<bool> put_pass(const pybind11::object& pass);
  [[nodiscard]] std::uint64_t feeding_ns() const;
  void find_native_failure();
  Outcome try_emit(PyObject*& emission);
  Outcome wait(Deadline slice);
  Replay begin_core(const PlanPosition& position);
  PlanPosition inspect(pybind11::dict& state, bool payload, std::uint64_t iterations, std::uint64_t batches);
  void make_room(std::size_t items);
  void refill(const pybind11::object& item, bool batched, const Indices& rows, const Indices& slots);
  int traverse(visitproc visit, void* arg) const;
  void drop_items();

 private:
  // How a batch comes to the consumer.
  enum class Delivery : unsigned char {
    kLent,  // as arrays on pyecho's memory, which is filled again once they are dropped
    kSent,  // as the owner of its memory makes it on a device
    kGiven  // as arrays on memory that leaves with it, so that the lease ends there
  };

  Outcome put_rows(const ItemView& view, std::size_t& row, Deadline deadline, bool wait);
  void fill(const ItemView& view, std::size_t row, std::span<const Reservation> reservations);
  // Returns an item that fits the slots. Raises SpecMismatch.
  [[nodiscard]] ItemViews::View checked_view(pybind11::handle item, bool batched);
  // Returns the buffer of the capsule, null if there is none.
  [[nodiscard]] capi::Buffer* native_handle() const;
  // Raises EchoError if a producer is inside, or a slot is reserved.
  void check_no_producer() const;
  // Has the capsule refer to a new core.
  void follow_core();
  void set_references(std::uint32_t slot, pybind11::tuple references);
  // Undoes it, for a slot that is not committed.
  void drop_references(std::uint32_t slot);
  // Returns where a slot has the number of its entry.
  [[nodiscard]] std::byte* entry_of(std::uint32_t slot) const noexcept {
    return core_->slot_data(slot) + core_->layout().leaves().back().slot_offset;
  }
  void add_payload(pybind11::dict& state, const std::vector<Unspent>& items) const;
  Outcome take_batch();
  pybind11::object make_batch(const Lease& lease, pybind11::handle owner);
  [[nodiscard]] pybind11::object sent_batch(const Lease& lease) const;
  template <class Keep>
  pybind11::object batch_of(std::vector<pybind11::object>& leaves, const Lease& lease, const Keep& keep,
                            pybind11::handle owner) const;
  [[nodiscard]] HostMemory new_memory(std::size_t size_bytes, Upload& upload) const;
  // Raises SpecMismatch if operations cannot transform these rows.
  void check_shapes(const ItemView& view) const;
  void check_shape(std::size_t leaf, std::span<const std::uint64_t> shape) const;
  // Returns what is wrong with it, "" for nothing.
  [[nodiscard]] std::string refusal_of_shape(std::size_t leaf, std::span<const std::uint64_t> shape) const;
  [[nodiscard]] std::string refusal_of_slot(std::uint32_t slot) const;
  [[nodiscard]] pybind11::object new_array(std::size_t leaf, const Shapes& shapes) const;
  [[nodiscard]] pybind11::object ragged_leaf(std::size_t index, const Lease& lease, pybind11::handle owner) const;
  pybind11::object array_leaf(std::size_t index, std::byte* data, std::uint32_t rows, pybind11::handle owner) const;
  [[nodiscard]] std::span<const ReferenceTable::Entry> entries_of(const Lease& lease) const noexcept;
  [[nodiscard]] pybind11::list reference_list(std::size_t position,
                                              std::span<const ReferenceTable::Entry> entries) const;
  void warn_of_growth();
  [[noreturn]] void raise_for_put(Outcome outcome, std::optional<double> timeout_s, const std::string& progress) const;
  [[noreturn]] void raise_exhausted() const;

  const Structure structure_;
  ItemViews views_{structure_};
  const std::vector<LeafSpec> row_leaves_;  // of a batch
  const pybind11::object to_array_;
  const pybind11::object from_array_;
  const pybind11::object info_type_;
  const pybind11::object new_memory_;
  const pybind11::object ragged_;
  const bool batched_;
  const bool has_references_;
  const Delivery delivery_;
  EchoConfig config_;
  ReferenceTable references_;
  std::shared_ptr<EchoBuffer> core_;
  ItemViews::View held_;                     // see hold()
  std::shared_ptr<NativeFeed> native_feed_;  // null unless a native source is feeding; shared with put_pass()
  Lease acquired_;                           // consumer only: acquired by wait() for try_emit()
  pybind11::object next_capsule_;            // for the lease of the next batch, or null
  pybind11::object pending_;                 // the lease of a batch whose delivery failed, for the next attempt
  Clock::time_point slot_came_;              // when the last slot was committed, or reserved after a wait
  pybind11::object capsule_;                 // null until it is asked for
  std::shared_ptr<EchoBuffer> larger_core_;  // made by make_room() for begin_core()
  Atomic<std::uint32_t> producers_;          // threads inside of put() and reserve()
  bool warned_of_growth_ = false;
};

// Returns the sizes of the leaves in a slot. Leaves that travel by reference have none; all of them together are one
// entry of the ReferenceTable, which is the last leaf.
[[nodiscard]] std::vector<LeafFormat> formats_of(const Structure& structure);

// Returns the lease in a capsule of ExampleStage::pending_.
[[nodiscard]] Lease& lease_of(const pybind11::object& capsule) noexcept;

// Reserves a slot, to be filled in place by Python (reservation.cpp).
pybind11::object make_reservation(std::shared_ptr<ExampleStage> buffer, std::optional<double> timeout_s,
                                  const pybind11::dict& shapes);

}  // namespace pyecho::bindings
