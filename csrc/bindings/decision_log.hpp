// The log of an adaptive factor in Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "bindings/errors.hpp"
#include "core/plan/plan_config.hpp"

namespace pyecho::bindings {

// Returns {first epoch: array}.
inline pybind11::dict log_dict(const DecisionLog& log) {
  pybind11::dict dict;
  for (const auto& [epoch, decisions] : log) {
    dict[pybind11::int_(epoch)] =
        pybind11::array_t<std::uint32_t>(static_cast<pybind11::ssize_t>(decisions.size()), decisions.data());
  }
  return dict;
}

// Raises CheckpointError if a plan has diverged from its log.
inline void check_log(bool diverged) {
  if (diverged) [[unlikely]] {
    raise(errors().checkpoint_error,
          "the log is not that of this run: the pool cannot take as many items before a batch as the log says; replay "
          "needs the source, the options, the seed and the epochs of the run that made the log");
  }
}

}  // namespace pyecho::bindings
