// Plain values that Python and the core exchange: the options (pyecho/config.py), the log of an adaptive
// factor, and positions (class Position of pyecho/state/position.py). Each is read by attribute.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/numpy_api.hpp"
#include "core/plan/replay.hpp"
#include "core/stage/echo_config.hpp"

namespace pyecho::bindings {

// Returns a read-only array of the decisions.
inline pybind11::array_t<std::uint32_t> array_of(const Decisions& decisions) {
  pybind11::array_t<std::uint32_t> array(static_cast<pybind11::ssize_t>(decisions.size()), decisions.data());
  PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
  return array;
}

// Returns {first epoch: array}, and {(first epoch, pass, parts): array} of later segments.
inline pybind11::dict log_dict(const DecisionLog& log) {
  pybind11::dict dict;
  for (const auto& [segment, decisions] : log) {
    const auto& [epoch, pass, parts] = segment;
    const bool is_first = pass == epoch && parts == 0;
    dict[is_first ? pybind11::object(pybind11::int_(epoch)) : pybind11::make_tuple(epoch, pass, parts)] =
        array_of(decisions);
  }
  return dict;
}

// Returns the log in such a dict.
inline std::shared_ptr<const DecisionLog> log_of(const pybind11::dict& dict) {
  DecisionLog log;
  for (const auto& [key, decisions] : dict) {
    SegmentName segment;
    if (pybind11::isinstance<pybind11::tuple>(key)) {
      const auto [epoch, pass, parts] = key.cast<std::array<std::uint64_t, 3>>();
      segment = {.epoch = epoch, .pass = pass, .parts = parts};
    } else {
      segment.epoch = segment.pass = key.cast<std::uint64_t>();
    }
    log.emplace(segment, decisions.cast<Decisions>());
  }
  return std::make_shared<const DecisionLog>(std::move(log));
}

// Raises CheckpointError if a plan has diverged from its log.
inline void check_log(bool diverged) {
  if (diverged) [[unlikely]] {
    raise(errors().checkpoint_error, kOtherLog);
  }
}

// Returns one attribute of the configuration.
template <class T>
T option(pybind11::handle config, const char* name) {
  return config.attr(name).cast<T>();
}

// Sets an option to one attribute of a record. None: it keeps its default.
template <class T>
void set(T& to, pybind11::handle record, const char* name) {
  if (const pybind11::object value = record.attr(name); !value.is_none()) {
    to = value.cast<T>();
  }
}

// `fitted`: see class Fitted in Python.
inline EchoConfig config_of(pybind11::handle fitted) {
  EchoConfig native;
  set(native.plan.capacity, fitted, "capacity");
  set(native.epoch, fitted, "epoch");
  set(native.prefetch, fitted, "prefetch");
  set(native.threads, fitted, "threads");
  set(native.slots_ahead, fitted, "slots_ahead");
  set(native.most_ahead, fitted, "most_ahead");
  set(native.shared_slots, fitted, "shared_slots");
  set(native.held, fitted, "held");
  const pybind11::object config = fitted.attr("config");
  set(native.plan.batch_size, config, "batch_size");
  set(native.plan.factor, config, "most_uses");
  set(native.plan.seed, config, "seed");
  set(native.plan.unique_in_batch, config, "unique_in_batch");
  set(native.plan.segment_uses, config, "segment_uses");
  set(native.plan.streams, config, "streams");
  set(native.plan.first_stream, config, "rank");
  set(native.plan.stream_step, config, "ranks");
  native.plan.even_factor = !config.attr("shards").is_none();
  set(native.steps, config, "steps_per_epoch");
  set(native.drop_last, config, "drop_last");
  set(native.with_info, config, "with_info");
  set(native.max_bytes, config, "max_bytes");
  if (const pybind11::object adaptive = config.attr("adaptive"); !adaptive.is_none()) {
    set(native.plan.min_uses, adaptive, "min");
    set(native.plan.max_age, adaptive, "max_age");
    native.plan.replay = log_of(option<pybind11::dict>(adaptive, "log"));
  }
  return native;
}

using Indices = pybind11::array_t<std::int64_t, pybind11::array::c_style | pybind11::array::forcecast>;

inline Extent extent_of(pybind11::handle at) {
  Extent extent;
  set(extent.items, at, "items");
  set(extent.uses, at, "uses");
  return extent;
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

// `at`: see class Segment in Python.
inline Segment segment_of(pybind11::handle at) {
  Segment segment{.passes = option<std::uint64_t>(at, "passes"),
                  .items = option<std::uint64_t>(at, "items"),
                  .parts = option<std::uint64_t>(at, "parts"),
                  .taken = option<std::uint64_t>(at, "taken"),
                  .alike = option<bool>(at, "alike")};
  for (const auto& [iterations, uses, more] : option<std::vector<std::array<std::uint64_t, 3>>>(at, "streams")) {
    segment.streams.push_back({.iterations = iterations, .uses = uses, .more = more});
  }
  return segment;
}

// `feed_all`: see PlanPosition.
inline PlanPosition position_of(pybind11::handle at, bool feed_all) {
  PlanPosition position{.epoch = option<std::uint64_t>(at, "epoch"),
                        .extent = extent_of(at),
                        .segment = segment_of(at.attr("segment")),
                        .open_items = option<std::uint64_t>(at, "open_items"),
                        .ended = option<bool>(at, "ended"),
                        .feed_all = feed_all,
                        .iterations = option<std::uint64_t>(at, "iterations"),
                        .batches = option<std::uint64_t>(at, "batches"),
                        .min_rows = option<std::uint32_t>(at, "min_rows"),
                        .ahead = option<std::uint64_t>(at, "ahead")};
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

// Adds the input of a position to a state.
inline void add_input(pybind11::dict& state, const PlanPosition& at) {
  std::vector<std::array<std::uint64_t, 2>> passes;
  passes.reserve(at.passes.size());
  for (const PassRun& run : at.passes) {
    passes.push_back({run.passes, run.items});
  }
  state["passes"] = passes;
  const Segment& segment = at.segment;
  std::vector<std::array<std::uint64_t, 3>> streams;
  streams.reserve(segment.streams.size());
  for (const Crossing& of_stream : segment.streams) {
    streams.push_back({of_stream.iterations, of_stream.uses, of_stream.more});
  }
  state["segment"] = pybind11::none();
  if (!streams.empty()) {
    state["segment"] = std::vector<pybind11::object>{pybind11::int_(segment.passes), pybind11::int_(segment.items),
                                                     pybind11::int_(segment.parts),  pybind11::int_(segment.taken),
                                                     pybind11::bool_(segment.alike), pybind11::cast(streams)};
  }
  state["open_items"] = at.open_items;
  state["ended"] = at.ended;
  state["decisions"] = array_of<std::int32_t>(at.decisions.size(), [&](std::size_t i) { return at.decisions[i]; });
}

// Returns an array of the numbers and one of the slots.
inline pybind11::tuple arrays_of(const Places& items) {
  return pybind11::make_tuple(array_of<std::int64_t>(items.size(), [&](std::size_t i) { return items[i].first; }),
                              array_of<std::int64_t>(items.size(), [&](std::size_t i) { return items[i].second; }));
}

// Same, of the items at the position of a replay: of these numbers, ascending, or all. Raises CheckpointError if there
// are others.
inline pybind11::tuple items_of(Replay& replay, const std::optional<Indices>& numbers) {
  if (!numbers) {
    return arrays_of(replay.items());
  }
  const std::vector<std::uint64_t> wanted(numbers->data(), numbers->data() + numbers->size());
  return arrays_of(naming(errors().checkpoint_error, [&] { return replay.items_of(wanted); }));
}

}  // namespace pyecho::bindings
