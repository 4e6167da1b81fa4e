// Positions of saved states (class Flow of pyecho/state/state.py), and plans that are brought there.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings/config.hpp"
#include "bindings/decision_log.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "core/plan/replay.hpp"

namespace pyecho::bindings {

// Returns how far a plan goes: `items` (None: unknown), `iteration_uses`, and `total_uses` (-1: without end).
inline Extent extent_of(pybind11::handle extent) {
  const auto uses = [&](const char* name) {
    const auto count = option<std::int64_t>(extent, name);
    return count < 0 ? kUnknown : static_cast<std::uint64_t>(count);
  };
  return {.items = option<std::optional<std::uint64_t>>(extent, "items").value_or(kUnknown),
          .iteration_uses = uses("iteration_uses"),
          .total_uses = uses("total_uses")};
}

// Knots of a joint plan: pairs of batch and events.
using Knots = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

inline Knots pairs_of(const std::vector<Knot>& knots) {
  Knots pairs;
  std::ranges::transform(knots, std::back_inserter(pairs),
                         [](const Knot& knot) { return std::pair(knot.batch, knot.events); });
  return pairs;
}

inline std::vector<Knot> knots_of(const Knots& pairs) {
  std::vector<Knot> knots;
  std::ranges::transform(pairs, std::back_inserter(knots),
                         [](const auto& pair) { return Knot{.batch = pair.first, .events = pair.second}; });
  return knots;
}

inline PlanPosition position_of(pybind11::handle flow) {
  PlanPosition position{.epoch = option<std::uint64_t>(flow, "epoch"),
                        .extent = extent_of(flow),
                        .open_items = option<std::uint64_t>(flow, "open_items"),
                        .ended = option<bool>(flow, "ended"),
                        .feed_all = option<bool>(flow, "payload"),
                        .iterations = option<std::uint64_t>(flow, "iterations"),
                        .batches = option<std::uint64_t>(flow, "batches"),
                        .min_rows = option<std::uint32_t>(flow, "min_rows")};
  const auto decisions = option<pybind11::array_t<std::uint32_t, pybind11::array::forcecast>>(flow, "decisions");
  position.decisions.assign(decisions.data(), decisions.data() + decisions.size());
  position.knots = knots_of(option<Knots>(flow, "knots"));
  for (const auto& [passes, items] : option<std::vector<std::pair<std::uint64_t, std::uint64_t>>>(flow, "passes")) {
    position.passes.push_back({.passes = passes, .items = items});
  }
  return position;
}

// Raises CheckpointError if there is no such position. Answers signals.
inline void run_to_end(Replay& replay) {
  constexpr std::uint64_t kUsesPerSlice = 1U << 20;
  for (Outcome outcome = Outcome::kEmpty; outcome != Outcome::kOk;) {
    outcome = without_gil(true, [&] { return replay.advance(kUsesPerSlice); });
    if (PyErr_CheckSignals() != 0) {
      throw pybind11::error_already_set();
    }
    check_log(replay.plan().diverged());
    if (outcome == Outcome::kClosed) {
      raise(errors().checkpoint_error, "the state contradicts itself: nothing comes to its place");
    }
  }
}

// Adds to a state what a plan was fed.
inline void add_input(pybind11::dict& state, const BatchPlan& plan) {
  std::vector<std::array<std::uint64_t, 2>> passes;
  for (const PassRun& run : plan.passes()) {
    passes.push_back({run.passes, run.items});
  }
  state["passes"] = passes;
  state["open_items"] = plan.open_items();
  state["ended"] = plan.ended();
  state["knots"] = pairs_of(plan.knots());
  state["decisions"] = pybind11::array_t<std::int32_t>(array_of(plan.decisions()));
}

// Returns the numbers of the items that a plan holds, ascending, and the slot of each. `drawn`: uses of a batch that has
// not been made, so that the items whose last ones these are count as well.
inline pybind11::tuple items_of(const BatchPlan& plan, std::span<const Use> drawn = {}) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> items;
  for (const Use& use : drawn) {
    if (use.last) {
      items.emplace_back(plan.number_of(use.slot), use.slot);
    }
  }
  plan.each_item([&](std::uint32_t slot, std::uint64_t number) { items.emplace_back(number, slot); });
  std::ranges::sort(items);
  pybind11::array_t<std::int64_t> numbers(static_cast<pybind11::ssize_t>(items.size()));
  pybind11::array_t<std::int64_t> slots(numbers.size());
  for (pybind11::ssize_t i = 0; i < numbers.size(); ++i) {
    const auto& [number, slot] = items[static_cast<std::size_t>(i)];
    numbers.mutable_at(i) = static_cast<std::int64_t>(number);
    slots.mutable_at(i) = slot;
  }
  return pybind11::make_tuple(std::move(numbers), std::move(slots));
}

}  // namespace pyecho::bindings
