// The recorder of traces (core/trace/recorder.hpp) in Python. pyecho/run/trace.py writes what it returns.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>

#include "bindings/registration.hpp"
#include "bindings/section.hpp"
#include "core/trace/recorder.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace pyecho::bindings {
namespace {

SectionLock recorder_lock;  // because one thread at a time may start and stop the recorder

trace::Kind kind_named(const std::string& name) {
  const auto* const found = std::ranges::find(trace::kNames, name);
  if (found == trace::kNames.end()) {
    throw py::value_error("a trace has no spans named '" + name + "'");
  }
  return static_cast<trace::Kind>(found - trace::kNames.begin());
}

// Returns (name, thread, begin_ns, end_ns, value) for each event, in the order of their ends.
py::list events_of(const trace::Recording& recording) {
  py::list names;
  for (const char* const name : trace::kNames) {
    names.append(name);
  }
  py::list events(recording.count);
  for (std::size_t i = 0; i < recording.count; ++i) {
    const trace::Event& event = recording.events[i];
    events[i] = py::make_tuple(names[static_cast<std::size_t>(event.kind)], event.thread, event.begin_ns, event.end_ns,
                               event.value);
  }
  return events;
}

}  // namespace

void register_trace(py::module_& module) {
  module.def(
      "trace_start",
      [] {
        const Section section(recorder_lock);
        return trace::start();
      },
      "Begin a recording; False if one runs already.");
  module.def(
      "trace_stop",
      [] {
        const Section section(recorder_lock);
        const trace::Recording recording = trace::stop();
        return py::dict("begin_ns"_a = recording.begin_ns, "events"_a = events_of(recording),
                        "dropped"_a = recording.dropped, "threads"_a = recording.threads);
      },
      "End the recording and return it.");
  module.def("trace_now", [] { return trace::to_ns(Clock::now()); }, "The time on the clock of the recorder, in ns.");
  module.def(
      "trace_span",
      [](const std::string& name, std::uint64_t begin_ns) {
        trace::record(kind_named(name), begin_ns, trace::to_ns(Clock::now()), 0);
      },
      py::arg("name"), py::arg("begin_ns"), "Record a span of this thread that ends now.");
  module.def("name_thread", &trace::name_thread, py::arg("name"), "Name the calling thread in traces.");
}

}  // namespace pyecho::bindings
