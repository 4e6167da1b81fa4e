// EchoBufferObject: construction, the producers' side, and the Python bindings.
#include "bindings/echo_buffer.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/config.hpp"
#include "bindings/errors.hpp"
#include "bindings/garbage.hpp"
#include "bindings/gil.hpp"
#include "bindings/iterator.hpp"
#include "bindings/reservation.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Rows of a batch that are committed together.
constexpr std::size_t kGroupRows = 32;

constexpr const char* kLessMemory = "lower capacity (shuffle_buffer), batch_size or prefetch";

bool any_reference(const Structure& structure) {
  return std::ranges::any_of(structure.leaves(), [](const LeafSpec& leaf) { return leaf.by_reference; });
}

// Adds the leaves of the structure to the configuration. Reference leaves have no bytes of their own; all of them together
// are one entry of the ReferenceTable, which is the last leaf.
EchoBufferConfig with_leaves(EchoBufferConfig config, const Structure& structure) {
  for (const LeafSpec& leaf : structure.leaves()) {
    config.leaf_bytes.push_back(leaf.size_bytes);
  }
  if (any_reference(structure)) {
    config.leaf_bytes.push_back(sizeof(ReferenceTable::Entry));
  }
  std::size_t needed = 0;
  try {
    needed = EchoBuffer::min_bytes(config);
  } catch (const std::length_error& error) {
    raise(errors().config_error, std::string(error.what()) + "; " + kLessMemory);
  }
  if (needed > config.max_bytes) {
    raise(errors().config_error, "the slots and batches need " + readable_bytes(needed) + ", but max_bytes is " +
                                     readable_bytes(config.max_bytes) + "; " + kLessMemory + ", or raise max_bytes");
  }
  return config;
}

}  // namespace

EchoBufferObject::EchoBufferObject(std::string name, std::shared_ptr<Structure> structure, EchoBufferConfig config,
                                   bool batched, Adapter adapter)
    : Stage(std::move(name)),
      structure_(std::move(structure)),
      adapter_(std::move(adapter)),
      batched_(batched),
      has_references_(any_reference(*structure_)),
      config_(with_leaves(std::move(config), *structure_)) {
  if (!adapter_.new_memory.is_none()) {
    config_.batch_memory = [this](std::size_t size_bytes) {
      const py::gil_scoped_acquire gil;
      return new_memory(size_bytes);
    };
  }
  try {  // touches every page, which is slow for a large pool
    core_ = without_gil(true, [this] { return std::make_shared<EchoBuffer>(config_); });
  } catch (const std::bad_alloc&) {
    raise(PyExc_MemoryError, "the system has no memory for the " + readable_bytes(EchoBuffer::min_bytes(config_)) +
                                 " that slots and batches need; " + kLessMemory);
  }
}

HostMemory EchoBufferObject::new_memory(std::size_t size_bytes) const {
  const auto [address, owner] =
      py::object(call_python([&] { return adapter_.new_memory(size_bytes); })).cast<std::pair<std::uintptr_t, py::object>>();
  return {reinterpret_cast<std::byte*>(address), size_bytes,
          std::shared_ptr<void>(py::object(owner).release().ptr(), [](void* held) {
            const py::gil_scoped_acquire gil;
            Py_DECREF(static_cast<PyObject*>(held));
          })};
}

// ---------------------------------------------------------------- producers

void EchoBufferObject::raise_timeout(const Timeout& timeout) const {
  raise(errors().put_timeout, "no slot became free within " + std::to_string(timeout.seconds) +
                                  " s: the consumer takes batches too slowly, or not at all; take batches meanwhile, "
                                  "or raise the timeout" +
                                  timeout.progress);
}

Reservation EchoBufferObject::reserve(const Timeout& timeout) {
  std::array<Reservation, 1> reservation{};
  std::uint32_t count = 0;
  Outcome outcome = core_->try_reserve(reservation, count);
  if (outcome == Outcome::kFull) {
    outcome =
        wait_answering_signals(timeout.deadline, [&](Deadline slice) { return core_->reserve(reservation[0], slice); });
  }
  if (outcome == Outcome::kTimeout) {
    raise_timeout(timeout);
  }
  if (outcome != Outcome::kOk) {
    raise_for(outcome);
  }
  return reservation[0];
}

// Puts the rows from `row` on, and advances `row` past the rows that were put. kOk: all rows. kFull only without `wait`.
// kTimeout, kClosed, kForked.
Outcome EchoBufferObject::put_rows(const ItemView& view, std::size_t& row, Timeout& timeout, bool wait) {
  std::array<Reservation, kGroupRows> group{};
  GilRelease gil(view.size_bytes() >= kGilFreeBytes && !has_references_);
  Outcome outcome = Outcome::kOk;
  while (row < view.rows()) {
    std::uint32_t count = 0;
    outcome = core_->try_reserve(std::span(group).first(std::min(group.size(), view.rows() - row)), count);
    if (outcome == Outcome::kFull && wait) {  // this thread holds no reservation while it sleeps
      gil.take_back();
      outcome = wait_answering_signals(
          timeout.deadline, [&](Deadline slice) { return core_->reserve(group[0], slice); },
          [this] { return paused(); });
      gil.release();
      count = 1;
    }
    if (outcome != Outcome::kOk) {
      break;
    }
    const std::span<const Reservation> reservations = std::span(group).first(count);
    if (has_references_) {
      put_references(view, row, reservations);
    }
    copy_rows(view, row, reservations);
    row += count;
  }
  gil.take_back();
  return outcome;
}

// Copies the rows from `row` on into these slots, and commits them together.
void EchoBufferObject::copy_rows(const ItemView& view, std::size_t row, std::span<const Reservation> reservations) {
  for (std::size_t i = 0; i < reservations.size(); ++i) {
    view.copy_row(row + i, *core_, reservations[i].slot);
  }
  core_->commit(reservations);
}

void EchoBufferObject::put_references(const ItemView& view, std::size_t row,
                                      std::span<const Reservation> reservations) {
  const SlotLayout::Leaf& leaf = core_->layout().leaves().back();
  try {
    for (std::size_t i = 0; i < reservations.size(); ++i) {
      const ReferenceTable::Entry entry = references_.put(view.references(row + i));
      std::memcpy(core_->slot_data(reservations[i].slot) + leaf.slot_offset, &entry, sizeof(entry));
    }
  } catch (...) {  // no memory
    for (const Reservation& reservation : reservations) {
      core_->abort(reservation);
    }
    throw;
  }
}

void EchoBufferObject::put(py::handle example, std::optional<double> timeout_s) {
  const ItemView view(*structure_, example, ItemKind::kExample, adapter_.to_array);
  Timeout timeout(timeout_s);
  std::size_t row = 0;
  const Outcome outcome = put_rows(view, row, timeout, true);
  if (outcome == Outcome::kTimeout) {
    raise_timeout(timeout);
  }
  if (outcome != Outcome::kOk) {
    raise_for(outcome);
  }
}

void EchoBufferObject::put_batch(py::handle batch, std::optional<double> timeout_s) {
  const ItemView view(*structure_, batch, ItemKind::kBatch, adapter_.to_array);
  Timeout timeout(timeout_s);
  std::size_t row = 0;
  const Outcome outcome = put_rows(view, row, timeout, true);
  if (outcome == Outcome::kTimeout) {
    timeout.progress = " (" + std::to_string(row) + " of " + std::to_string(view.rows()) + " rows were taken)";
    raise_timeout(timeout);
  }
  if (outcome != Outcome::kOk) {
    raise_for(outcome);
  }
}

void EchoBufferObject::hold(const py::object& item) {
  held_ = {.view = std::make_shared<ItemView>(*structure_, item, item_kind(), adapter_.to_array), .next = 0};
}

Outcome EchoBufferObject::put_held(bool wait, std::uint64_t& put) {
  const std::shared_ptr<ItemView> view = held_.view;
  if (view == nullptr) {  // the item's destructor, or a thread that had the GIL during it, has stopped the stage
    return Outcome::kClosed;
  }
  Timeout forever(std::nullopt);
  std::size_t row = held_.next;
  const Outcome outcome = put_rows(*view, row, forever, wait);
  put += row - held_.next;
  held_.next = row;
  if (outcome == Outcome::kOk) {
    held_ = {};
  }
  return outcome;
}

Outcome EchoBufferObject::mark_pass_end(Deadline deadline) {
  Reservation place{};
  const Outcome outcome = core_->reserve(place, deadline);
  if (outcome == Outcome::kOk) {
    core_->end_pass(place);
  }
  return outcome;
}

std::vector<py::object> EchoBufferObject::slot_views(Reservation reservation, py::handle owner) const {
  std::vector<py::object> views;
  std::byte* const slot = core_->slot_data(reservation.slot);
  for (std::size_t i = 0; i < structure_->leaves().size(); ++i) {
    const LeafSpec& leaf = structure_->leaves()[i];
    views.push_back(array_on(slot + core_->layout().leaves()[i].slot_offset,
                             as_descr(py::object(leaf.dtype).release().ptr()), leaf.shape.data(),
                             static_cast<int>(leaf.shape.size()), owner));
  }
  return views;
}

py::dict EchoBufferObject::stats() const {
  const EchoBufferStats stats = core_->stats();
  py::dict dict;
  dict["fresh"] = stats.fresh;
  dict["emitted"] = stats.emitted;
  dict["batches"] = stats.batches;
  dict["bytes_gathered"] = stats.bytes_gathered;
  dict["source_ns"] = source_ns();
  dict["consumer_wait_ns"] = stats.consumer_wait_ns;
  dict["downstream_ns"] = stats.downstream_ns;
  dict["resident"] = stats.resident;
  dict["outstanding_leases"] = stats.outstanding_leases;
  dict["host_allocations"] = stats.batch_blocks + 1;  // plus one for the slots
  return dict;
}

// ---------------------------------------------------------------- garbage collection and registration

int EchoBufferObject::traverse(visitproc visit, void* arg) const {
  Py_VISIT(adapter_.to_array.ptr());
  Py_VISIT(adapter_.from_array.ptr());
  Py_VISIT(adapter_.info_type.ptr());
  Py_VISIT(adapter_.new_memory.ptr());
  if (const int stop = references_.traverse(visit, arg); stop != 0) {
    return stop;
  }
  return Stage::traverse(visit, arg);
}

void EchoBufferObject::clear() {
  pending_ = py::object();
  held_ = {};
  references_.clear();
  Stage::clear();
}

void register_echo_buffer(py::module_& module) {
  py::class_<EchoBufferObject, Stage, std::shared_ptr<EchoBufferObject>>(
      module, "EchoBuffer", collect_cycles<EchoBufferObject>(), "The native stage of example echoing.")
      .def(py::init([](std::shared_ptr<Structure> structure, const py::object& config, std::string name, bool batched,
                       py::object new_memory, py::object to_array, py::object from_array, py::object info_type) {
             return std::make_shared<EchoBufferObject>(
                 std::move(name), std::move(structure), buffer_config(config), batched,
                 Adapter{std::move(to_array), std::move(from_array), std::move(info_type), std::move(new_memory)});
           }),
           py::arg("structure"), py::arg("config"), py::kw_only(), py::arg("name"), py::arg("batched"),
           py::arg("new_memory"), py::arg("to_array"), py::arg("from_array"), py::arg("info_type"))
      .def("put", &EchoBufferObject::put, py::arg("example"), py::arg("timeout") = py::none(),
           "put(example, timeout=None)\n\n"
           "Copy one example into the buffer; wait while every slot is in use.\n\n"
           "Raises SpecMismatch (nothing was taken), PutTimeout, Closed. Any number of threads may put; the order of\n"
           "examples is the order in which they obtained their slots. An array is copied before put returns.")
      .def("put_batch", &EchoBufferObject::put_batch, py::arg("batch"), py::arg("timeout") = py::none(),
           "put_batch(batch, timeout=None)\n\n"
           "Put every row of a batch: the nest of an example whose leaves have one more, leading axis of equal "
           "length.\n\n"
           "Raises as put(); PutTimeout says how many rows were taken before the time was up.")
      .def(
          "reserve",
          [](const py::object& self, std::optional<double> timeout) { return make_reservation(self, timeout); },
          py::arg("timeout") = py::none(),
          "reserve(timeout=None)\n\n"
          "Obtain a slot and write the example into it in place:\n\n"
          "    with buffer.reserve() as views:\n"
          "        views['image'][...] = ...\n\n"
          "Leaving the block commits the example, an exception aborts it. The views must not be written to "
          "afterwards.");
}

}  // namespace pyecho::bindings
