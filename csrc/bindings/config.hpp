// Reads the Python side's one configuration (pyecho/config.py) into the structs of the core.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "bindings/decision_log.hpp"
#include "core/stage/echo_buffer.hpp"
#include "core/stage/echo_queue.hpp"

namespace pyecho::bindings {

// Returns one attribute of the configuration.
template <class T>
T option(pybind11::handle config, const char* name) {
  return config.attr(name).cast<T>();
}

inline std::uint64_t max_age(pybind11::handle config) {
  return option<std::optional<std::uint64_t>>(config, "max_age").value_or(0);
}

inline EchoBufferConfig buffer_config(pybind11::handle config) {
  EchoBufferConfig native;
  native.batch_rows = option<std::uint32_t>(config, "batch_size");
  native.capacity = option<std::uint32_t>(config, "capacity");
  native.factor = option<double>(config, "most_uses");
  native.seed = option<std::uint64_t>(config, "seed");
  native.epoch = option<std::uint64_t>(config, "epoch");
  native.steps = option<std::optional<std::uint64_t>>(config, "steps_per_epoch").value_or(0);
  native.unique_in_batch = option<bool>(config, "unique_in_batch");
  native.drop_last = option<bool>(config, "drop_last");
  native.with_info = option<bool>(config, "with_info");
  native.prefetch = option<std::uint32_t>(config, "prefetch");
  native.threads = option<std::optional<std::uint32_t>>(config, "threads").value_or(0);
  native.burst = option<std::uint32_t>(config, "burst");
  native.max_bytes = option<std::optional<std::size_t>>(config, "max_bytes").value_or(kUnlimited);
  native.held = option<std::uint32_t>(config, "held");
  native.min_uses = option<std::uint32_t>(config, "min_uses");
  native.max_age = max_age(config);
  native.replay = log_of(option<pybind11::dict>(config, "replay"));
  native.streams = option<std::uint32_t>(config, "streams");
  native.first_stream = option<std::uint64_t>(config, "rank");
  native.stream_step = option<std::uint64_t>(config, "ranks");
  native.even_factor = option<bool>(config, "even_factor");
  return native;
}

inline EchoQueueConfig queue_config(pybind11::handle config) {
  return {.capacity = option<std::uint32_t>(config, "capacity"),
          .factor = option<double>(config, "most_uses"),
          .seed = option<std::uint64_t>(config, "seed"),
          .epoch = option<std::uint64_t>(config, "epoch"),
          .steps = option<std::optional<std::uint64_t>>(config, "steps_per_epoch").value_or(0),
          .prefetch = option<std::uint32_t>(config, "prefetch"),
          .min_uses = option<std::uint32_t>(config, "min_uses"),
          .max_age = max_age(config),
          .replay = log_of(option<pybind11::dict>(config, "replay")),
          .streams = option<std::uint32_t>(config, "streams"),
          .first_stream = option<std::uint64_t>(config, "rank"),
          .stream_step = option<std::uint64_t>(config, "ranks"),
          .even_factor = option<bool>(config, "even_factor")};
}

}  // namespace pyecho::bindings
