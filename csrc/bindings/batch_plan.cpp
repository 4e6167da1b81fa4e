#include "core/plan/batch_plan.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bindings/config.hpp"
#include "bindings/decision_log.hpp"
#include "bindings/position.hpp"
#include "bindings/registration.hpp"
#include "bindings/section.hpp"
#include "bindings/stage.hpp"

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
// its reads. The pool, the batch and the examples that are offered while it waits for some have a slot each.
class SlotPlan {
 public:
  explicit SlotPlan(const EchoBufferConfig& config)
      : slots_(config.capacity + 2 * config.batch_rows + config.burst - 1 +
               static_cast<std::uint32_t>(BatchPlan::waiting_slots(config.streams, config.capacity))),
        drop_last_(config.drop_last),
        plan_({.capacity = config.capacity,
               .slots = slots_,
               .factor = config.factor,
               .seed = config.seed,
               .unique_in_batch = config.unique_in_batch,
               .iteration_uses = config.steps * config.batch_rows,
               .even_factor = config.even_factor,
               .streams = config.streams,
               .first_stream = config.first_stream,
               .stream_step = config.stream_step,
               .min_uses = config.min_uses,
               .max_age = config.max_age,
               .batch_rows = config.batch_rows,
               .replay = config.replay}),
        uses_(config.batch_rows) {
    start(config.epoch, {});
  }

  void begin(std::uint64_t epoch, const py::object& extent) { start(epoch, extent_of(extent)); }

  void start(std::uint64_t epoch, const Extent& extent) {
    plan_.begin(epoch, extent);
    rows_ = 0;
    free_.clear();
    for (std::uint32_t slot = slots_; slot > 0; --slot) {
      free_.push_back(slot - 1);  // slot 0 is taken first
    }
  }

  // Same, but continues at a position. Returns the numbers of the items there and their slots, and how many passes,
  // and items of the next one, the plan was fed, and batches drawn.
  py::tuple resume(const py::object& flow) {
    rows_ = 0;
    Replay replay(plan_, static_cast<std::uint32_t>(uses_.size()), position_of(flow));
    run_to_end(replay);
    free_ = replay.free_slots();
    return py::make_tuple(items_of(plan_), replay.passes_fed(), plan_.open_items(), replay.batches_drawn());
  }

  // Returns where the plan stands. The items whose last use is in the open batch still have their slots.
  [[nodiscard]] py::dict state() const {
    py::dict state;
    add_input(state, plan_);
    state["items"] = items_of(plan_, std::span(uses_).first(rows_));
    return state;
  }

  [[nodiscard]] const SectionLock& lock() const noexcept { return lock_; }
  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] std::size_t room() const noexcept { return free_.size(); }
  [[nodiscard]] py::dict log() const { return log_dict(plan_.log()); }
  void check_log() const { bindings::check_log(plan_.diverged()); }
  [[nodiscard]] std::uint32_t resident() const noexcept { return plan_.resident(); }
  [[nodiscard]] std::optional<std::array<std::uint64_t, 2>> own_uses() const { return known(plan_.own_uses()); }
  [[nodiscard]] bool at_end() const noexcept { return plan_.finished(); }
  void end_pass() { plan_.end_pass(); }
  void end_input() { plan_.end_input(); }

  // Returns true if a batch is complete, false if examples are needed, nothing if the iteration is over.
  std::optional<bool> advance() {
    std::uint32_t drawn = 0;
    const Outcome outcome = plan_.draw(std::span(uses_).subspan(rows_), drawn);
    rows_ += drawn;
    plan_.take_left(
        [this](std::span<const std::uint32_t> slots) { free_.insert(free_.end(), slots.begin(), slots.end()); });
    if (outcome == Outcome::kEmpty) {
      return false;
    }
    if (rows_ == 0) {
      plan_.next_iteration();
      return std::nullopt;
    }
    plan_.end_batch();
    return true;
  }

  // Returns the slots of the next examples.
  py::array_t<std::int64_t> offer(std::size_t examples) {
    if (examples > free_.size()) {
      throw py::value_error("the pool has no room for so many examples");
    }
    const std::span<const std::uint32_t> slots = std::span(free_).last(examples);
    for (const std::uint32_t slot : slots) {
      plan_.feed(slot);
    }
    auto array = array_of<std::int64_t>(examples, [&](std::size_t i) { return slots[i]; });
    free_.resize(free_.size() - examples);
    return array;
  }

  // Returns slot, source index and use of each row. A short batch has no row with drop_last.
  py::tuple take() {
    const bool dropped = drop_last_ && rows_ < uses_.size();
    const std::size_t rows = dropped ? 0 : rows_;
    py::tuple taken = py::make_tuple(array_of<std::int64_t>(rows, [&](std::size_t i) { return uses_[i].slot; }),
                                     array_of<std::int64_t>(rows, [&](std::size_t i) { return uses_[i].source_index; }),
                                     array_of<std::int32_t>(rows, [&](std::size_t i) { return uses_[i].ordinal; }));
    for (const Use& use : std::span(uses_).first(rows_)) {
      if (use.last) {
        free_.push_back(use.slot);
      }
    }
    rows_ = 0;
    return taken;
  }

 private:
  [[no_unique_address]] SectionLock lock_;
  const std::uint32_t slots_;
  const bool drop_last_;
  BatchPlan plan_;
  std::vector<Use> uses_;            // of the open batch
  std::uint32_t rows_ = 0;           // of them, drawn so far
  std::vector<std::uint32_t> free_;  // slots without an example
};

}  // namespace

void register_batch_plan(py::module_& module) {
  py::class_<SlotPlan>(module, "BatchPlan", "Decides the slot of each example, and the slots of each batch.")
      .def(py::init([](const py::object& config) { return std::make_unique<SlotPlan>(buffer_config(config)); }),
           py::arg("config"))
      .def("begin", guarded(&SlotPlan::begin), py::arg("epoch"), py::arg("extent"),
           "Forget everything and start again.")
      .def("resume", guarded(&SlotPlan::resume), py::arg("flow"),
           "Start at a position. Return the numbers of its items and their slots; passes and items that were fed; "
           "batches.")
      .def("state", guarded(&SlotPlan::state), "Return where the plan stands, and the items that are not used up.")
      .def("advance", guarded(&SlotPlan::advance),
           "Continue: True when a batch is complete, False when it needs examples, None at the end of an iteration.")
      .def("offer", guarded(&SlotPlan::offer), py::arg("examples"),
           "Add this many examples, at most `room`. There is room for batch_size once advance() has returned False. "
           "Return\ntheir slots.")
      .def_property_readonly("room", guarded(&SlotPlan::room), "Slots that are free.")
      .def_property_readonly("log", guarded(&SlotPlan::log), "The decisions of an adaptive factor.")
      .def_property_readonly("own_uses", guarded(&SlotPlan::own_uses))
      .def("check_log", guarded(&SlotPlan::check_log),
           "Raise CheckpointError if the log of an adaptive factor is not that of this run.")
      .def("end_pass", guarded(&SlotPlan::end_pass), "Mark the examples so far as a pass; another one follows.")
      .def("end_input", guarded(&SlotPlan::end_input), "Mark the examples so far as the last pass.")
      .def_property_readonly("slots", guarded(&SlotPlan::slots), "Number of slots.")
      .def_property_readonly("resident", guarded(&SlotPlan::resident), "Examples in the pool.")
      .def_property_readonly("at_end", guarded(&SlotPlan::at_end), "The last iteration is over.")
      .def("take", guarded(&SlotPlan::take),
           "Return slot, source index and use of each row of the planned batch, and start the next one. A batch that "
           "is\n"
           "too short for drop_last has no rows.");
}

}  // namespace pyecho::bindings
