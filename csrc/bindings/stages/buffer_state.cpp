// Saving and resuming an ExampleStage: the items of a state are columns, one for each leaf.

#include <cstring>
#include <stdexcept>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"
#include "bindings/stages/buffer.hpp"
#include "core/memory/checksum.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

PlanPosition ExampleStage::inspect(py::dict& state, bool payload, std::uint64_t iterations, std::uint64_t batches) {
  if (!payload) {
    return core_->position(iterations, batches);
  }
  std::vector<const Batch*> untaken;
  if (pending_) {
    untaken.push_back(&lease_of(pending_).batch());
  }
  if (acquired_) {
    untaken.push_back(&acquired_.batch());
  }
  std::vector<Unspent> items;
  PlanPosition at = core_->inspect(items, std::move(untaken), iterations, batches);
  add_payload(state, items);
  return at;
}

// Adds `numbers`, `columns` and `checksum` of the items, ascending. A column is an array with the bytes of each row; of a
// leaf of variable size a tuple of all bytes and the shape of each row; or a list of references.
void ExampleStage::add_payload(py::dict& state, const std::vector<Unspent>& items) const {
  const auto count = static_cast<py::ssize_t>(items.size());
  py::list columns(structure_.leaves().size());
  std::vector<std::byte*> memory;
  std::vector<py::list> lists;
  for (const LeafSpec& leaf : structure_.leaves()) {
    std::vector<py::ssize_t> extents{count, static_cast<py::ssize_t>(leaf.size_bytes)};
    const SlotLayout::Leaf& of_leaf = core_->layout().leaves()[memory.size()];
    py::array_t<std::int64_t> shapes({count, static_cast<py::ssize_t>(leaf.variable.axes)});
    if (leaf.variable.axes > 0) {
      extents = {0};
      auto* extent = reinterpret_cast<std::byte*>(shapes.mutable_data());
      for (const Unspent& item : items) {
        const VariableItem& variable = core_->variable_of(item, of_leaf);
        extents[0] += static_cast<py::ssize_t>(variable.size_bytes);
        std::memcpy(extent, variable.shape(of_leaf).data(), variable.shape(of_leaf).size_bytes());
        extent += variable.shape(of_leaf).size_bytes();
      }
    }
    py::array_t<std::uint8_t> rows(extents);
    if (leaf.by_reference) {
      columns[memory.size()] = lists.emplace_back();
    } else if (leaf.variable.axes > 0) {
      columns[memory.size()] = py::make_tuple(rows, shapes);
    } else {
      columns[memory.size()] = rows;
    }
    memory.push_back(reinterpret_cast<std::byte*>(rows.mutable_data()));
  }
  state["checksum"] = without_gil(true, [&] { return core_->copy_items(items, memory); });
  for (const Unspent& item : items) {
    if (!has_references_) {
      break;
    }
    ReferenceTable::Entry entry = 0;
    std::memcpy(&entry, core_->data_of(item, core_->layout().leaves().back()), sizeof(entry));
    if (!references_.contains(entry)) {
      raise_outcome(Outcome::kClosed, name());
    }
    const auto leaves = py::reinterpret_borrow<py::tuple>(references_.at(entry));
    for (std::size_t leaf = 0; leaf < lists.size(); ++leaf) {
      lists[leaf].append(leaves[leaf]);
    }
  }
  state["numbers"] = array_of<std::int64_t>(items.size(), [&](std::size_t i) { return items[i].number; });
  state["columns"] = std::move(columns);
}

void ExampleStage::make_room(std::size_t items) {
  larger_core_.reset();
  try {
    larger_core_ = without_gil(true, [&] { return core_->with_room_for(items); });
  } catch (const std::length_error& error) {
    raise(errors().config_error, error.what());
  }
  check_no_producer();
}

Replay ExampleStage::begin_core(const PlanPosition& position) {
  acquired_.reset();
  if (larger_core_) {
    static_cast<void>(
        without_gil(true, [&] { return begin_epoch(*core_, 0, {}); }));  // throws if a reservation is open
    core_ = std::exchange(larger_core_, nullptr);
    follow_core();
  }
  return begin_at(position);
}

void ExampleStage::refill(const py::object& item, bool batched, const Indices& rows, const Indices& slots) {
  const ItemViews::View view = checked_view(item, batched);
  for (py::ssize_t i = 0; i < slots.size(); ++i) {
    const auto row = static_cast<std::size_t>(rows.at(i));
    const auto slot = static_cast<std::uint32_t>(slots.at(i));
    if (row >= view->rows() || slot >= core_->input().slots()) {
      raise(errors().checkpoint_error, "the source yields other batches than when the state was taken");
    }
    if (has_references_) {
      set_references(slot, view->references(row));
    }
    std::byte* const memory = core_->slot_data(slot);
    view->copy_rows(row, core_->layout(), core_->input().stream_slots(), std::span(&memory, 1));
  }
  stream_fence();
}

namespace {

std::span<const std::byte> bytes_of(const py::array& array) {
  return {static_cast<const std::byte*>(array.data()), static_cast<std::size_t>(array.nbytes())};
}

}  // namespace

void register_checksums(py::module_& module) {
  module.def(
      "checksum_of_column",
      [](const py::array& rows, const Indices& numbers, std::size_t leaf) {
        const std::span<const std::byte> bytes = bytes_of(rows);
        const std::span<const std::int64_t> seeds(numbers.data(), static_cast<std::size_t>(numbers.size()));
        return without_gil(true, [&] { return checksum_of_column(bytes, seeds, leaf); });
      },
      py::arg("rows"), py::arg("numbers"), py::arg("leaf"),
      "The checksum of one leaf of a state's items, rows of bytes.");
  module.def(
      "checksum",
      [](const py::array& array) {
        const std::span<const std::byte> bytes = bytes_of(array);
        return without_gil(bytes.size() >= kGilFreeBytes, [bytes] { return checksum(bytes, 0); });
      },
      py::arg("array"), "The checksum of the bytes of a C-contiguous array.");
}

}  // namespace pyecho::bindings
