// Stage: how it begins and stops, what a saved state tells of it, and how it continues from one.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>

#include "bindings/errors.hpp"
#include "bindings/stages/reader.hpp"
#include "bindings/stages/stage.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace pyecho::bindings {

void Stage::set_paused(bool paused) {
  paused_.store_relaxed(paused);
  halt_core(paused);
}

py::dict Stage::state(bool payload, bool with_held, const std::optional<std::array<std::uint64_t, 2>>& taken) {
  if (core().forked()) {
    raise_for(Outcome::kForked);
  }
  if (consumer_ != std::thread::id()) {
    raise(errors().echo_error,
          "a state is taken between two batches; a thread is inside next(), perhaps this one, in a "
          "signal handler: note the wish there, and take the state in the loop");
  }
  find_native_failure();
  if (!failure_.is_none()) {
    raise_from(failure_, errors().echo_error,
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
    const std::uint64_t before = iterations_ == iterations_before_ ? delivered_before_ : 0;
    const auto [iterations, batches] =
        taken.value_or(std::array{iterations_ - iterations_before_, delivered_ + dropped_ - before});
    add_input(state, inspect(state, payload, iterations, batches));
    if (with_held && feed_ && feed_->at_pass_end()) {
      state["passes"].cast<py::list>().append(std::array{py::int_(1), py::int_(state["open_items"])});
      state["open_items"] = 0;
    }
    if (with_held) {
      state["held"] = feed_ ? py::cast(feed_->items()) : py::list();
      state["held_row"] = feed_ ? feed_->row() : 0;
    }
  } catch (...) {
    halt_core(paused());
    throw;
  }
  halt_core(paused());
  return state;
}

void Stage::stop() {
  core().stop();
  drop_items();
}

// Drops an item that was read while another thread stopped the stage.
void Stage::drop_if_stopped() {
  if (stopped()) {
    drop_items();
  }
}

// Stops, and waits for a consumer in another thread to leave.
void Stage::leave_epoch() {
  if (consumer_ == std::this_thread::get_id()) {
    raise(errors().echo_error,
          "this thread is inside next() of the same loader, perhaps in a signal handler; begin the next iteration once "
          "that call has returned");
  }
  stop();
  if (consumer_ != std::thread::id()) {  // it is leaving
    const auto sleep = [](Deadline slice) {
      std::this_thread::sleep_until(slice);
      return Outcome::kTimeout;
    };
    static_cast<void>(wait_answering_signals(kNever, sleep, [this] { return consumer_ == std::thread::id(); }));
  }
}

// Begins at a position. `error`: the type of the exception if there is none such.
Replay Stage::start(const PlanPosition& position, std::uint64_t delivered, PyObject* error) {
  leave_epoch();
  Replay replay = naming(error, [&] { return begin_core(position); });
  run_to_end(replay);
  core().resume(replay);
  iterations_ = position.iterations;
  iterations_before_ = delivered_before_ = 0;
  delivered_ = delivered;
  dropped_ = replay.batches_drawn() - std::min(delivered, replay.batches_drawn());
  end_is_next_ = false;
  ended_ = at_end();
  return replay;
}

void Stage::begin(const py::object& at) {
  if (core().forked()) {
    raise_for(Outcome::kForked);
  }
  const auto iterations = option<std::uint64_t>(at, "iterations");
  const auto delivered = option<std::uint64_t>(at, "delivered");
  start({.epoch = option<std::uint64_t>(at, "epoch"), .extent = extent_of(at)}, delivered, errors().config_error);
  iterations_ = iterations_before_ = iterations;
  delivered_before_ = delivered;
  halt_core(false);
}

py::tuple Stage::resume(const py::object& at, const std::optional<Indices>& unspent) {
  if (core().forked()) {
    raise_for(Outcome::kForked);
  }
  const PlanPosition position = position_of(at, unspent.has_value());
  const auto delivered = option<std::uint64_t>(at, "delivered");
  paused_.store_relaxed(true);
  Replay replay = start(position, delivered, errors().checkpoint_error);
  return items_of(replay, unspent);
}

}  // namespace pyecho::bindings
