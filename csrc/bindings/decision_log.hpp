// The log of an adaptive factor in Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/numpy_api.hpp"
#include "core/plan/decisions.hpp"

namespace pyecho::bindings {

// Returns a read-only array that shares the memory of the decisions.
inline pybind11::array_t<std::uint32_t> array_of(const Decisions& decisions) {
  const pybind11::capsule owner(new Decisions(decisions), [](void* owned) { delete static_cast<Decisions*>(owned); });
  pybind11::array_t<std::uint32_t> array(static_cast<pybind11::ssize_t>(decisions.values().size()),
                                         decisions.values().data(), owner);
  PyArray_CLEARFLAGS(as_array(array), NPY_ARRAY_WRITEABLE);
  return array;
}

// Returns {first epoch: array}.
inline pybind11::dict log_dict(const DecisionLog& log) {
  pybind11::dict dict;
  for (const auto& [epoch, decisions] : log) {
    dict[pybind11::int_(epoch)] = array_of(decisions);
  }
  return dict;
}

// Returns the log in such a dict.
inline DecisionLog log_of(const pybind11::dict& dict) {
  DecisionLog log;
  for (const auto& [epoch, decisions] : dict) {
    log.emplace(epoch.cast<std::uint64_t>(), Decisions(decisions.cast<std::vector<std::uint32_t>>()));
  }
  return log;
}

// Raises CheckpointError if a plan has diverged from its log.
inline void check_log(bool diverged) {
  if (diverged) [[unlikely]] {
    raise(errors().checkpoint_error, kOtherLog);
  }
}

}  // namespace pyecho::bindings
