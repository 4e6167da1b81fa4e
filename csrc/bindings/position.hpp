// Positions (class Position of pyecho/state/position.py), and plans that are brought there. A position is read by
// attribute: epoch, items, uses, iterations, delivered; where a run goes on also batches, min_rows, passes, open_items,
// ended, decisions.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/config.hpp"
#include "bindings/decision_log.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "core/plan/replay.hpp"

namespace pyecho::bindings {

using Indices = pybind11::array_t<std::int64_t, pybind11::array::c_style | pybind11::array::forcecast>;

inline Extent extent_of(pybind11::handle at) {
  return {.items = option<std::optional<std::uint64_t>>(at, "items").value_or(kUnknown),
          .uses = option<std::optional<std::uint64_t>>(at, "uses").value_or(kUnknown)};
}

// Returns an array of `size` elements, each made by `element(i)`.
template <class T, class Element>
pybind11::array_t<T> array_of(std::size_t size, const Element& element) {
  pybind11::array_t<T> array(static_cast<pybind11::ssize_t>(size));
  T* const data = array.mutable_data();
  for (std::size_t i = 0; i < size; ++i) {
    data[i] = static_cast<T>(element(i));
  }
  return array;
}

// Calls `function`, and turns a std::invalid_argument into an exception of this type.
template <class Function>
auto naming(PyObject* type, const Function& function) {
  try {
    return function();
  } catch (const std::invalid_argument& error) {
    raise(type, error.what());
  }
}

// `feed_all`: see PlanPosition.
inline PlanPosition position_of(pybind11::handle at, bool feed_all) {
  PlanPosition position{.epoch = option<std::uint64_t>(at, "epoch"),
                        .extent = extent_of(at),
                        .open_items = option<std::uint64_t>(at, "open_items"),
                        .ended = option<bool>(at, "ended"),
                        .feed_all = feed_all,
                        .iterations = option<std::uint64_t>(at, "iterations"),
                        .batches = option<std::uint64_t>(at, "batches"),
                        .min_rows = option<std::uint32_t>(at, "min_rows")};
  const auto decisions = option<pybind11::array_t<std::uint32_t, pybind11::array::forcecast>>(at, "decisions");
  position.decisions.assign(decisions.data(), decisions.data() + decisions.size());
  for (const auto& [passes, items] : option<std::vector<std::pair<std::uint64_t, std::uint64_t>>>(at, "passes")) {
    position.passes.push_back({.passes = passes, .items = items});
  }
  return position;
}

// Raises CheckpointError if there is no such position. Answers signals.
inline void run_to_end(Replay& replay) {
  const auto advance = [&] { return without_gil(true, [&] { return replay.advance(); }); };
  while (!naming(errors().checkpoint_error, advance)) {
    throw_if(PyErr_CheckSignals() != 0);
  }
}

// Adds to a state what a plan was fed.
inline void add_input(pybind11::dict& state, const Plan& plan) {
  std::vector<std::array<std::uint64_t, 2>> passes;
  for (const PassRun& run : plan.passes()) {
    passes.push_back({run.passes, run.items});
  }
  state["passes"] = passes;
  state["open_items"] = plan.open_items();
  state["ended"] = plan.ended();
  state["decisions"] = pybind11::array_t<std::int32_t>(array_of(plan.decisions()));
}

// Returns an array of the numbers and one of the slots.
inline pybind11::tuple arrays_of(const Places& items) {
  return pybind11::make_tuple(array_of<std::int64_t>(items.size(), [&](std::size_t i) { return items[i].first; }),
                              array_of<std::int64_t>(items.size(), [&](std::size_t i) { return items[i].second; }));
}

// Same, of the items at the position of a replay: of these numbers, ascending, or all. Raises CheckpointError if there
// are others.
inline pybind11::tuple items_of(const Replay& replay, const std::optional<Indices>& numbers) {
  if (!numbers) {
    return arrays_of(replay.plan().items());
  }
  const std::vector<std::uint64_t> wanted(numbers->data(), numbers->data() + numbers->size());
  return arrays_of(naming(errors().checkpoint_error, [&] { return replay.items_of(wanted); }));
}

}  // namespace pyecho::bindings
