// Slots that workers fill (pyecho/workers): a worker's writer, and the stage's side.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/items/item_view.hpp"
#include "bindings/registration.hpp"
#include "bindings/stages/buffer.hpp"
#include "core/memory/host_memory.hpp"
#include "core/memory/stream_copy.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Writes examples into slots of a stage, perhaps one of another process. Any thread; the stage decides who has a slot.
class SlotWriter {
 public:
  // `spec`, `node_of`, `to_array`: of the stage. The rest: see ExampleStage::shared_slots().
  SlotWriter(const py::object& spec, const py::object& node_of, py::object to_array, int descriptor,
             std::size_t size_bytes, bool streamed)
      : structure_(spec, node_of),
        to_array_(std::move(to_array)),
        layout_(formats_of(structure_), 1, false, true),
        memory_(HostMemory::mapped(descriptor, size_bytes, layout_.is_whole())),
        streamed_(streamed) {}

  // Returns the leaves that travel by reference, or None if the spec has none. Raises SpecMismatch.
  [[nodiscard]] py::object write(std::uint32_t slot, const py::object& item) {
    const ItemViews::View view = views_.of(item, false, to_array_);
    if ((slot + std::size_t{1}) * layout_.slot_distance() > memory_.size_bytes()) {
      throw py::index_error("there is no such slot");
    }
    without_gil(view->size_bytes() >= kGilFreeBytes, [&] {
      std::byte* const data = memory_.data() + slot * layout_.slot_distance();
      view->copy_rows(0, layout_, streamed_, std::span(&data, 1), layout_.is_whole() ? &memory_ : nullptr);
      stream_fence();  // the process that reads the slot learns of it by a message
      return true;
    });
    return structure_.has_references() ? py::object(view->references(0)) : py::none();
  }

 private:
  const Structure structure_;
  ItemViews views_{structure_};
  const py::object to_array_;
  const SlotLayout layout_;
  const HostMemory memory_;
  const bool streamed_;
};

}  // namespace

py::object ExampleStage::reserve_slots(std::size_t most, bool wait) {
  std::array<Reservation, 64> found{};
  const std::span wanted = std::span(found).first(std::clamp<std::size_t>(most, 1, found.size()));
  std::uint32_t count = 0;
  Outcome outcome = core_->input().try_reserve(wanted, count);
  if (outcome == Outcome::kFull) {
    source_clock_.blocked();
    if (wait) {
      outcome = wait_for_room(kNever, [&](Deadline slice) { return core_->input().reserve(wanted, count, slice); });
      slot_came_ = Clock::now();
    }
  }
  if (outcome == Outcome::kFull || outcome == Outcome::kTimeout || outcome == Outcome::kHalted) {
    return py::none();
  }
  if (outcome != Outcome::kOk) {
    raise_for(outcome);
  }
  try {
    Slots slots;
    std::ranges::transform(wanted.first(count), std::back_inserter(slots), &Reservation::slot);
    return py::make_tuple(slots, found[0].ticket);
  } catch (...) {  // no memory: an open reservation would hold up all later ones
    std::ranges::for_each(wanted.first(count), [this](Reservation each) { core_->abort(each); });
    throw;
  }
}

py::tuple ExampleStage::commit_slots(const Slots& slots, std::uint64_t ticket, const py::list& references) {
  std::vector<Reservation> reservations;
  std::string refusal;
  for (const std::uint32_t slot : slots) {
    if (refusal = refusal_of_slot(slot); !refusal.empty()) {
      break;
    }
    if (has_references_) {
      set_references(slot, references[reservations.size()]);
    }
    reservations.push_back({.slot = slot, .ticket = ticket + reservations.size()});
    const Clock::time_point now = Clock::now();
    source_clock_.read(slot_came_, now, true);
    slot_came_ = now;
  }
  py::tuple committed = py::make_tuple(reservations.size(), refusal);
  core_->input().commit(reservations);
  return committed;
}

// Returns why operations cannot transform what a slot has; "" if they can.
std::string ExampleStage::refusal_of_slot(std::uint32_t slot) const {
  std::string refusal;
  for (std::size_t leaf = 0; leaf < structure_.leaves().size() && refusal.empty(); ++leaf) {
    if (structure_.leaves()[leaf].variable.axes > 0) {
      const SlotLayout::Leaf& of_leaf = core_->layout().leaves()[leaf];
      refusal = refusal_of_shape(leaf, core_->variable_item(slot, of_leaf).shape(of_leaf));
    }
  }
  return refusal;
}

void ExampleStage::abort_slots(const Slots& slots, std::uint64_t ticket) {
  for (const std::uint32_t slot : slots) {
    core_->abort({.slot = slot, .ticket = ticket++});
  }
}

py::tuple ExampleStage::shared_slots() const {
  const HostMemory& memory = core_->slot_memory().records();
  return py::make_tuple(memory.descriptor(), memory.size_bytes(), core_->input().stream_slots());
}

void register_slot_writer(py::module_& module) {
  py::class_<SlotWriter>(module, "SlotWriter", "Writes examples into slots of a stage.")
      .def(py::init<const py::object&, const py::object&, py::object, int, std::size_t, bool>(), py::arg("spec"),
           py::arg("node_of"), py::arg("to_array"), py::arg("descriptor"), py::arg("size_bytes"), py::arg("streamed"))
      .def("write", &SlotWriter::write, py::arg("slot"), py::arg("item"));
}

}  // namespace pyecho::bindings
