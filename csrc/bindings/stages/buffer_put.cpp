// The producers' side of ExampleStage: items are checked, and copied into slots.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/stages/buffer.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Rows of a batch that are committed together.
constexpr std::size_t kGroupRows = 32;

// Counts a thread that is inside of put() or reserve().
class Inside {
 public:
  explicit Inside(Atomic<std::uint32_t>& producers) : producers_(producers) { producers_.fetch_add_acq_rel(1); }
  ~Inside() { producers_.fetch_add_acq_rel(static_cast<std::uint32_t>(-1)); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Atomic<std::uint32_t>& producers_;
};

}  // namespace

// Raises for the outcome of an attempt to put. `progress` is appended to the message of a PutTimeout.
void ExampleStage::raise_for_put(Outcome outcome, std::optional<double> timeout_s, const std::string& progress) const {
  if (outcome == Outcome::kTimeout) {
    raise(errors().put_timeout, "no slot became free within " + std::to_string(timeout_s.value_or(0)) +
                                    " s: the consumer takes batches too slowly, or not at all; take batches meanwhile, "
                                    "or raise the timeout" +
                                    progress);
  }
  raise_for(outcome);
}

namespace {

// Returns the shape that `shapes` has for a leaf of variable size. Raises ConfigError.
std::vector<std::uint64_t> shape_in(const py::dict& shapes, const LeafSpec& leaf) {
  const py::str name(leaf.name);
  const py::object given = shapes && shapes.contains(name) ? py::object(shapes[name]) : py::none();
  std::vector<npy_intp> shape;
  if (py::detail::make_caster<std::vector<npy_intp>> caster; caster.load(given, true)) {  // else it fits no leaf
    shape = py::detail::cast_op<std::vector<npy_intp>&>(caster);
  }
  const auto fits = [](npy_intp wanted, npy_intp extent) { return extent >= 0 && (wanted == extent || wanted == -1); };
  if (!std::ranges::equal(leaf.shape, shape, fits)) {
    raise(errors().config_error, leaf.path + ": reserve() needs shapes={'" + leaf.name + "': ...} for a " +
                                     leaf.described + ", got " + std::string(py::repr(given)));
  }
  const std::size_t size_bytes = bytes_of_array(leaf.variable.element_bytes, shape);
  if (size_bytes > leaf.variable.max_bytes) {
    raise(errors().spec_mismatch, leaf.path + ": a shape of " + std::string(py::repr(given)) + " has " +
                                      readable_bytes(size_bytes) + ", and max_bytes of its Field is " +
                                      readable_bytes(leaf.variable.max_bytes) + "; raise it, or make the item smaller");
  }
  return {shape.begin(), shape.end()};
}

}  // namespace

std::string ExampleStage::refusal_of_shape(std::size_t leaf, std::span<const std::uint64_t> shape) const {
  const LeafSpec& of_leaf = structure_.leaves()[leaf];
  const ops::Program* const program = config_.programs.empty() ? nullptr : config_.programs[leaf].get();
  const std::string refusal = refusal_of(of_leaf.variable, program, shape);
  return refusal.empty() ? refusal : of_leaf.path + ": " + refusal;
}

void ExampleStage::check_shape(std::size_t leaf, std::span<const std::uint64_t> shape) const {
  if (const std::string refusal = refusal_of_shape(leaf, shape); !refusal.empty()) {
    raise(errors().spec_mismatch, refusal);
  }
}

void ExampleStage::check_shapes(const ItemView& view) const {
  for (std::size_t leaf = 0; leaf < structure_.leaves().size() && !config_.programs.empty(); ++leaf) {
    if (structure_.leaves()[leaf].variable.axes == 0 || config_.programs[leaf] == nullptr) {
      continue;
    }
    view.each_shape(leaf, [&](std::span<const std::uint64_t> shape) { check_shape(leaf, shape); });
  }
}

ExampleStage::Shapes ExampleStage::checked_shapes(const py::dict& shapes) const {
  Shapes wanted(core_->layout().has_variable() ? structure_.leaves().size() : 0);
  for (std::size_t leaf = 0; leaf < wanted.size(); ++leaf) {
    if (structure_.leaves()[leaf].variable.axes > 0) {
      wanted[leaf] = shape_in(shapes, structure_.leaves()[leaf]);
      check_shape(leaf, wanted[leaf]);
    }
  }
  return wanted;
}

Reservation ExampleStage::reserve(std::optional<double> timeout_s) {
  const Inside inside(producers_);
  Reservation reservation{};
  const Outcome outcome = reserve_slot(reservation, true, deadline_after(timeout_s));
  if (outcome != Outcome::kOk) {
    raise_for_put(outcome, timeout_s, "");
  }
  return reservation;
}

// Puts the rows from `row` on, and advances `row` past the rows that were put. kOk: all rows. kFull only without
// `wait`. kTimeout, kHalted, kClosed, kForked.
Outcome ExampleStage::put_rows(const ItemView& view, std::size_t& row, Deadline deadline, bool wait) {
  std::array<Reservation, kGroupRows> group;  // NOLINT(cppcoreguidelines-pro-type-member-init): set below
  const bool without_gil = view.size_bytes() >= kGilFreeBytes && !has_references_;
  GilRelease gil(without_gil);
  // Signals are answered then, whatever the number of short waits.
  Deadline signals = without_gil ? Clock::now() + kSignalSlice : Deadline::min();
  Outcome outcome = Outcome::kOk;
  while (row < view.rows()) {
    std::uint32_t count = 0;
    const std::span wanted = std::span(group).first(std::min(group.size(), view.rows() - row));
    outcome = core_->input().try_reserve(wanted, count);
    if (outcome == Outcome::kFull && wait) {  // this thread holds no reservation while it sleeps
      const auto reserve = [&](Deadline slice) { return core_->input().reserve(wanted, count, slice); };
      outcome = Outcome::kTimeout;
      if (without_gil) {  // a first slice: to take the GIL takes long beside a thread of plain Python
        const trace::Span span(trace::Kind::kRoom);
        source_clock_.blocked();
        outcome = reserve(std::min(deadline, signals));
      }
      if (outcome == Outcome::kTimeout || outcome == Outcome::kHalted) {
        gil.take_back();
        outcome = wait_for_room(deadline, reserve);
        gil.release();
        signals = Clock::now() + kSignalSlice;
      }
    }
    if (outcome != Outcome::kOk) {
      break;
    }
    try {
      fill(view, row, std::span(group).first(count));
    } catch (...) {  // no memory
      gil.take_back();
      throw;
    }
    row += count;
  }
  gil.take_back();
  return outcome;
}

// Fills these slots with the rows from `row` on, and commits them together.
void ExampleStage::fill(const ItemView& view, std::size_t row, std::span<const Reservation> reservations) {
  std::size_t referring = 0;  // slots that have references
  try {
    std::array<std::byte*, kGroupRows> slots;  // NOLINT(cppcoreguidelines-pro-type-member-init): set below
    for (std::size_t i = 0; i < reservations.size(); ++i) {
      slots.at(i) = core_->slot_data(reservations[i].slot);
    }
    view.copy_rows(row, core_->layout(), core_->input().stream_slots(), std::span(slots).first(reservations.size()));
    for (; has_references_ && referring < reservations.size(); ++referring) {
      set_references(reservations[referring].slot, view.references(row + referring));
    }
  } catch (...) {
    for (const Reservation& reservation : reservations) {
      if (referring > 0) {
        drop_references(reservation.slot);
        --referring;
      }
      core_->abort(reservation);
    }
    throw;
  }
  core_->input().commit(reservations);
}

ItemViews::View ExampleStage::checked_view(py::handle item, bool batched) {
  ItemViews::View view = views_.of(item, batched, to_array_);
  check_shapes(*view);
  return view;
}

void ExampleStage::put(py::handle item, bool batched, std::optional<double> timeout_s) {
  const Inside inside(producers_);
  const ItemViews::View view = checked_view(item, batched);
  std::size_t row = 0;
  const Outcome outcome = put_rows(*view, row, deadline_after(timeout_s), true);
  if (outcome != Outcome::kOk) {
    raise_for_put(
        outcome, timeout_s,
        batched ? " (" + std::to_string(row) + " of " + std::to_string(view->rows()) + " rows were taken)" : "");
  }
}

void ExampleStage::hold(const py::object& item) { held_ = checked_view(item, batched_); }

// stop() may come meanwhile, and finds no item that it could drop.
Outcome ExampleStage::put_held(bool wait, std::size_t& row) {
  ItemViews::View view = std::move(held_);
  if (view == nullptr) {  // the item's destructor, or a thread that had the GIL during it, has stopped the stage
    return Outcome::kClosed;
  }
  const auto keep = [&] {
    if (!stopped()) {
      held_ = std::move(view);
    }
  };
  try {
    const Outcome outcome = put_rows(*view, row, kNever, wait);
    if (outcome != Outcome::kOk) {
      keep();
    }
    return outcome;
  } catch (...) {
    keep();
    throw;
  }
}

py::object ExampleStage::new_array(std::size_t leaf, const Shapes& shapes) const {
  const LeafSpec& of_leaf = structure_.leaves()[leaf];
  std::vector<npy_intp> shape(shapes[leaf].begin(), shapes[leaf].end());
  return owned(
      PyArray_Zeros(static_cast<int>(shape.size()), shape.data(), as_descr(py::object(of_leaf.dtype).release()), 0));
}

void ExampleStage::fill_variable(Reservation reservation, const Shapes& shapes,
                                 const std::vector<py::object>& arrays) const {
  for (std::size_t leaf = 0; leaf < shapes.size(); ++leaf) {
    const SlotLayout::Leaf& of_leaf = core_->layout().leaves()[leaf];
    if (of_leaf.variable.axes == 0) {
      continue;
    }
    std::byte* const to = core_->allocate(reservation.slot, of_leaf, shapes[leaf]);
    if (to == nullptr) {
      throw std::bad_alloc();
    }
    const py::object array = arrays[leaf] ? arrays[leaf] : new_array(leaf, shapes);
    std::memcpy(to, PyArray_DATA(as_array(array)), static_cast<std::size_t>(PyArray_NBYTES(as_array(array))));
  }
}

std::vector<py::object> ExampleStage::slot_views(Reservation reservation, py::handle owner, const Shapes& shapes,
                                                 std::vector<py::object>& arrays) const {
  std::vector<py::object> views;
  views.reserve(structure_.leaves().size());
  std::byte* const slot = core_->slot_data(reservation.slot);
  for (const LeafSpec& leaf : structure_.leaves()) {
    const SlotLayout::Leaf& of_leaf = core_->layout().leaves()[views.size()];
    if (leaf.variable.axes > 0) {
      py::object& array = arrays[views.size()];
      if (!array) {
        array = new_array(views.size(), shapes);
      }
      views.push_back(owned(PyArray_View(as_array(array), nullptr, nullptr)));
    } else {
      views.push_back(array_on(slot + of_leaf.slot_offset, leaf.dtype, leaf.shape, owner));
    }
  }
  return views;
}

}  // namespace pyecho::bindings
