// pyecho._core.SlotPlan: a plan of slots without a stage, for pools that Python keeps (device/pool.py).
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "bindings/encoding.hpp"
#include "bindings/registration.hpp"
#include "bindings/section.hpp"
#include "core/plan/plan.hpp"
#include "core/stage/plan_view.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// A Plan and its slots, for an executor that stores the examples elsewhere (on a device). A slot whose last use is
// in a batch is not reused before that batch has been taken, so an executor may do all stores of a batch before all of
// its reads. The pool, the batch and the examples that are offered while it waits for some have a slot each.
class SlotPlan {
 public:
  explicit SlotPlan(const EchoConfig& config)
      : slots_(config.plan.capacity + 2 * config.plan.batch_size + config.slots_ahead - 1 +
               static_cast<std::uint32_t>(Plan::waiting_slots(config.plan.streams, config.plan.capacity))),
        drop_last_(config.drop_last),
        plan_(plan_of(config, slots_)),
        uses_(config.plan.batch_size) {
    plan_.begin(config.epoch, {});
    view_.begin(plan_);
    free_all();
  }

  void begin(const py::object& at) {
    naming(errors().config_error, [&] { plan_.begin(option<std::uint64_t>(at, "epoch"), extent_of(at)); });
    view_.begin(plan_);
    free_all();
  }

  // Same, but continues at a position. `unspent`: see Stage::resume(). Returns the items as that does, and how many
  // passes, and items of the next one, the plan was fed, and batches drawn.
  py::tuple resume(const py::object& at, const std::optional<Indices>& unspent) {
    rows_ = 0;
    Replay replay = naming(errors().checkpoint_error, [&] {
      return Replay(plan_, static_cast<std::uint32_t>(uses_.size()), position_of(at, unspent.has_value()));
    });
    view_.begin(plan_);
    run_to_end(replay);
    view_.publish(plan_);
    free_ = replay.free_slots();
    return py::make_tuple(items_of(replay, unspent), replay.passes_fed(), plan_.open_items(), replay.batches_drawn());
  }

  // Returns where the plan stands, with the `payload` also `items`: the items whose last use is in the open batch still
  // have their slots. `iterations`, `batches`: taken by the last of the consumers.
  [[nodiscard]] py::dict state(bool payload, std::uint64_t iterations, std::uint64_t batches) const {
    py::dict state;
    const PlanPosition at = plan_.position(iterations, batches * uses_.size());
    add_input(state, at);
    if (!payload) {
      return state;
    }
    Places items = plan_.items();
    for (const Use& use : std::span(uses_).first(rows_)) {
      if (use.last) {
        items.emplace_back(plan_.number_of(use.slot), use.slot);
      }
    }
    for (auto& item : items) {
      item.first -= at.segment.taken;
    }
    std::ranges::sort(items);
    state["items"] = arrays_of(items);
    return state;
  }

  [[nodiscard]] const SectionLock& lock() const noexcept { return lock_; }
  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] std::size_t room() const noexcept { return free_.size(); }
  [[nodiscard]] py::dict log() const { return log_dict(view_.log()); }
  void check_log() const { bindings::check_log(plan_.diverged()); }
  [[nodiscard]] std::uint32_t resident() const noexcept { return plan_.resident(); }
  [[nodiscard]] bool at_end() const noexcept { return plan_.finished(); }
  void end_pass() { plan_.end_pass(); }
  void end_input() { plan_.end_input(); }

  // Returns true if a batch is complete, false if examples are needed, nothing if the iteration is over.
  std::optional<bool> advance() {
    std::uint32_t drawn = 0;
    const Outcome outcome = plan_.draw(std::span(uses_).subspan(rows_), drawn);
    view_.publish(plan_);
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

  // Adds so many examples, at most room(), and returns their slots. There is room for a batch once advance() has
  // returned false.
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
  void free_all() {
    rows_ = 0;
    free_.resize(slots_);
    std::iota(free_.rbegin(), free_.rend(), 0U);  // slot 0 is taken first
  }

  [[no_unique_address]] SectionLock lock_;
  const std::uint32_t slots_;
  const bool drop_last_;
  Plan plan_;
  PlanView view_;
  std::vector<Use> uses_;            // of the open batch
  std::uint32_t rows_ = 0;           // of them, drawn so far
  std::vector<std::uint32_t> free_;  // slots without an example
};

}  // namespace

void register_slot_plan(py::module_& module) {
  py::class_<SlotPlan>(module, "SlotPlan", "Decides the slot of each example, and the slots of each batch.")
      .def(py::init([](const py::object& config) { return std::make_unique<SlotPlan>(config_of(config)); }),
           py::arg("config"))
      .def("begin", guarded<SlotPlan>(&SlotPlan::begin), py::arg("at"))
      .def("resume", guarded<SlotPlan>(&SlotPlan::resume), py::arg("at"), py::arg("unspent"))
      .def("state", guarded<SlotPlan>(&SlotPlan::state), py::kw_only(), py::arg("payload"), py::arg("iterations"),
           py::arg("batches"))
      .def("advance", guarded<SlotPlan>(&SlotPlan::advance))
      .def("offer", guarded<SlotPlan>(&SlotPlan::offer), py::arg("examples"))
      .def("take", guarded<SlotPlan>(&SlotPlan::take))
      .def("end_pass", guarded<SlotPlan>(&SlotPlan::end_pass))
      .def("end_input", guarded<SlotPlan>(&SlotPlan::end_input))
      .def("check_log", guarded<SlotPlan>(&SlotPlan::check_log))
      .def_property_readonly("log", guarded<SlotPlan>(&SlotPlan::log))
      .def_property_readonly("room", guarded<SlotPlan>(&SlotPlan::room))
      .def_property_readonly("slots", guarded<SlotPlan>(&SlotPlan::slots))
      .def_property_readonly("resident", guarded<SlotPlan>(&SlotPlan::resident))
      .def_property_readonly("at_end", guarded<SlotPlan>(&SlotPlan::at_end));
}

}  // namespace pyecho::bindings
