// Reads the Python side's one configuration and its wiring (pyecho/config.py) into the struct of the core.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "bindings/decision_log.hpp"
#include "core/stage/echo_config.hpp"

namespace pyecho::bindings {

// Returns one attribute of the configuration.
template <class T>
T option(pybind11::handle config, const char* name) {
  return config.attr(name).cast<T>();
}

inline EchoConfig config_of(pybind11::handle config) {
  const pybind11::object wiring = config.attr("wiring");
  EchoConfig native;
  native.plan.batch_rows = option<std::optional<std::uint32_t>>(config, "batch_size").value_or(1);
  native.plan.capacity = option<std::uint32_t>(config, "capacity");
  native.plan.factor = option<double>(config, "most_uses");
  native.plan.seed = option<std::uint64_t>(config, "seed");
  native.epoch = option<std::uint64_t>(wiring, "epoch");
  native.steps = option<std::optional<std::uint64_t>>(config, "steps_per_epoch").value_or(0);
  native.plan.unique_in_batch = option<bool>(config, "unique_in_batch");
  native.drop_last = option<bool>(config, "drop_last");
  native.with_info = option<bool>(config, "with_info");
  native.prefetch = option<std::uint32_t>(config, "prefetch");
  native.threads = option<std::optional<std::uint32_t>>(config, "threads").value_or(0);
  native.burst = option<std::uint32_t>(wiring, "slots_ahead");
  native.max_bytes = option<std::optional<std::size_t>>(config, "max_bytes").value_or(kUnlimited);
  native.most_ahead = option<std::uint32_t>(wiring, "most_ahead");
  native.held = option<std::uint32_t>(wiring, "leases");
  native.plan.min_uses = option<std::uint32_t>(config, "min_uses");
  native.plan.max_age = option<std::optional<std::uint64_t>>(config, "max_age").value_or(0);
  native.plan.replay = log_of(option<pybind11::dict>(config, "replay"));
  native.plan.streams = option<std::uint32_t>(config, "streams");
  native.plan.first_stream = option<std::uint64_t>(wiring, "rank");
  native.plan.stream_step = option<std::uint64_t>(wiring, "ranks");
  native.plan.even_factor = option<bool>(config, "even_factor");
  return native;
}

}  // namespace pyecho::bindings
