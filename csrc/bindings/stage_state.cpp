// Stage: what a saved state tells of it, and how it continues from one.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/position.hpp"
#include "bindings/stage.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace pyecho::bindings {

void Stage::set_paused(bool paused) {
  paused_.store_relaxed(paused);
  halt_core(paused);
}

py::dict Stage::state(bool payload, bool with_held) {
  if (forked()) {
    raise_for(Outcome::kForked);
  }
  if (consumer_ != std::thread::id()) {
    raise(errors().echo_error,
          "a state is taken between two batches; a thread is inside next(), perhaps this one, in a "
          "signal handler: note the wish there, and take the state in the loop");
  }
  if (!failure_.is_none() || failed_natively()) {
    raise(errors().echo_error,
          "the source has raised an exception that the consumer is about to get; no state can "
          "repeat that, so go on from an earlier one");
  }
  if (stopped()) {
    raise_for(Outcome::kClosed);
  }
  const OneConsumer consumer(*this);  // keeps other threads out
  py::dict state("iterations"_a = iterations_, "delivered"_a = delivered_, "batches"_a = delivered_ + dropped_);
  halt_core(true);
  try {
    const BatchPlan& plan = inspect(state, payload);
    add_input(state, plan);
    if (with_held && pass_ended_) {
      state["passes"].cast<py::list>().append(std::array{py::int_(1), py::int_(state["open_items"])});
      state["open_items"] = 0;
    }
    if (with_held) {
      state["held"] = py::cast(std::vector<py::object>(read_.begin(), read_.end()));
      state["held_row"] = holds_item() ? held_row() : skipped_rows_;
    }
  } catch (...) {
    halt_core(paused());
    throw;
  }
  halt_core(paused());
  return state;
}

py::tuple Stage::resume(const py::object& flow) {
  if (forked()) {
    raise_for(Outcome::kForked);
  }
  leave_epoch();
  paused_.store_relaxed(true);
  make_room(option<std::size_t>(flow, "count"));
  Replay replay = begin_core_at(position_of(flow));
  run_to_end(replay);
  resume_core(replay);
  iterations_ = option<std::uint64_t>(flow, "iterations");
  delivered_ = option<std::uint64_t>(flow, "delivered");
  dropped_ = replay.batches_drawn() - std::min(delivered_, replay.batches_drawn());
  end_is_next_ = false;
  return items_of(replay.plan());
}

}  // namespace pyecho::bindings
