#include "bindings/batch_plan.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bindings/config.hpp"
#include "core/plan/batch_plan.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Returns an array of `size` elements, each made by `element(i)`.
template <class T, class Element>
py::array_t<T> array_of(std::size_t size, const Element& element) {
  py::array_t<T> array(static_cast<py::ssize_t>(size));
  T* const data = array.mutable_data();
  for (std::size_t i = 0; i < size; ++i) {
    data[i] = static_cast<T>(element(i));
  }
  return array;
}

// A BatchPlan and its slots, for an executor that stores the examples elsewhere (on a device). A slot whose last use is
// in a batch is not reused before that batch has been taken, so an executor may do all stores of a batch before all of
// its reads.
class SlotPlan {
 public:
  explicit SlotPlan(py::handle config)
      : batch_rows_(option<std::uint32_t>(config, "batch_size")),
        drop_last_(option<bool>(config, "drop_last")),
        slots_(option<std::uint32_t>(config, "capacity") + 2 * batch_rows_),
        plan_({.capacity = option<std::uint32_t>(config, "capacity"),
               .slots = slots_,
               .factor = option<double>(config, "factor"),
               .seed = option<std::uint64_t>(config, "seed"),
               .unique_in_batch = option<bool>(config, "unique_in_batch"),
               .iteration_uses =
                   option<std::optional<std::uint64_t>>(config, "steps_per_epoch").value_or(0) * batch_rows_}),
        uses_(batch_rows_) {
    begin(option<std::uint64_t>(config, "epoch"), std::nullopt);
  }

  void begin(std::uint64_t epoch, std::optional<std::uint64_t> items) {
    plan_.begin(epoch, items.value_or(kUnknown));
    rows_ = 0;
    offered_ = 0;
    marks_.clear();
    spent_.clear();
    stored_.clear();
    free_.clear();
    for (std::uint32_t slot = slots_; slot > 0; --slot) {
      free_.push_back(slot - 1);  // slot 0 is taken first
    }
  }

  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] std::uint32_t resident() const noexcept { return plan_.resident(); }
  [[nodiscard]] bool at_end() const noexcept { return plan_.finished(); }
  void offer(std::uint64_t examples) { offered_ += examples; }
  // The plan is told of the end of a pass only after every example before it has a slot.
  void end_pass() { marks_.push_back({offered_, false}); }
  void end_input() { marks_.push_back({offered_, true}); }

  // Returns true if a batch is complete, false if examples are needed, nothing if the iteration is over.
  std::optional<bool> advance() {
    for (;;) {
      feed();
      std::uint32_t drawn = 0;
      const Outcome outcome = plan_.draw(std::span(uses_).subspan(rows_), drawn);
      for (std::uint32_t row = rows_; row < rows_ + drawn; ++row) {
        if (uses_[row].last) {
          spent_.push_back(uses_[row].slot);
        }
      }
      rows_ += drawn;
      if (outcome == Outcome::kEmpty) {
        if (feed()) {
          continue;
        }
        return false;
      }
      if (rows_ == 0) {
        plan_.next_iteration();
        return std::nullopt;
      }
      plan_.end_batch();
      if (rows_ == batch_rows_ || !drop_last_) {
        return true;
      }
      rows_ = 0;  // drops a short batch; its slots are freed with the next batch that is taken
    }
  }

  // Returns (slots of the examples to store first, in source order; slot, source index and use of each row).
  py::tuple take() {
    py::tuple taken =
        py::make_tuple(array_of<std::int64_t>(stored_.size(), [&](std::size_t i) { return stored_[i]; }),
                       array_of<std::int64_t>(rows_, [&](std::size_t i) { return uses_[i].slot; }),
                       array_of<std::int64_t>(rows_, [&](std::size_t i) { return uses_[i].source_index; }),
                       array_of<std::int32_t>(rows_, [&](std::size_t i) { return uses_[i].ordinal; }));
    free_.insert(free_.end(), spent_.begin(), spent_.end());
    spent_.clear();
    stored_.clear();
    rows_ = 0;
    return taken;
  }

 private:
  struct Mark {
    std::uint64_t after;  // examples before it that were offered and not fed
    bool last;
  };

  // Gives slots to offered examples. Returns false if there was nothing to do.
  bool feed() {
    bool fed = false;
    for (;;) {
      std::uint64_t wanted = std::min<std::uint64_t>(offered_, free_.size());
      if (!marks_.empty()) {
        wanted = std::min(wanted, marks_.front().after);
      }
      for (std::uint64_t i = 0; i < wanted; ++i) {
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        stored_.push_back(slot);
        plan_.feed(slot);
      }
      offered_ -= wanted;
      for (Mark& mark : marks_) {
        mark.after -= wanted;
      }
      fed = fed || wanted > 0;
      if (marks_.empty() || marks_.front().after > 0) {
        return fed;
      }
      if (marks_.front().last) {
        plan_.end_input();
      } else {
        plan_.end_pass();
      }
      marks_.erase(marks_.begin());
      fed = true;
    }
  }

  const std::uint32_t batch_rows_;
  const bool drop_last_;
  const std::uint32_t slots_;
  BatchPlan plan_;
  std::vector<Use> uses_;
  std::uint32_t rows_ = 0;     // rows drawn into uses_
  std::uint64_t offered_ = 0;  // examples without a slot
  std::vector<Mark> marks_;
  std::vector<std::uint32_t> free_;    // slots without an example
  std::vector<std::uint32_t> spent_;   // slots whose last use is in this batch
  std::vector<std::uint32_t> stored_;  // slots given to examples since the last batch was taken
};

}  // namespace

void register_batch_plan(py::module_& module) {
  py::class_<SlotPlan>(module, "BatchPlan", "Decides the slot of each example, and the slots of each batch.")
      .def(py::init<py::handle>(), py::arg("config"))
      .def("begin", &SlotPlan::begin, py::arg("epoch"), py::arg("items"), "Forget everything and start again.")
      .def("advance", &SlotPlan::advance,
           "Continue: True when a batch is complete, False when it needs examples, None at the end of an iteration.")
      .def("offer", &SlotPlan::offer, py::arg("examples"), "Add this many examples.")
      .def("end_pass", &SlotPlan::end_pass, "Mark the examples so far as a pass; another one follows.")
      .def("end_input", &SlotPlan::end_input, "Mark the examples so far as the last pass.")
      .def_property_readonly("slots", &SlotPlan::slots, "Number of slots.")
      .def_property_readonly("resident", &SlotPlan::resident, "Examples in the pool.")
      .def_property_readonly("at_end", &SlotPlan::at_end, "The last iteration is over.")
      .def("take", &SlotPlan::take,
           "The planned batch: slots of the examples to store first, in source order, then slot, source index and use\n"
           "of each row. Starts the next batch.");
}

}  // namespace pyecho::bindings
