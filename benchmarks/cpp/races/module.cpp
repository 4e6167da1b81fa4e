// The extension module pyecho.bench._races.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "races.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_races, module, py::mod_gil_not_used()) {
  using namespace pyecho;

  module.doc() = "The native measurements of `pyecho bench`.";
  py::class_<bench::GatherRace>(module, "GatherRace",
                                "Example echoing and bare memcpy of the same bytes, for benchmarks.")
      .def(py::init([](std::size_t row_bytes, std::uint32_t batch_size, std::uint32_t shuffle_buffer,
                       std::uint32_t factor, std::uint64_t fresh, unsigned threads) {
             return bench::GatherRace({row_bytes, batch_size, shuffle_buffer, factor, fresh, threads});
           }),
           py::kw_only(), py::arg("row_bytes"), py::arg("batch_size"), py::arg("shuffle_buffer"), py::arg("factor"),
           py::arg("fresh"), py::arg("threads"))
      .def("memcpy_seconds", &bench::GatherRace::memcpy_seconds, py::arg("threads"),
           py::call_guard<py::gil_scoped_release>())
      .def("echo_seconds", &bench::GatherRace::echo_seconds, py::call_guard<py::gil_scoped_release>());
  module.def(
      "hand_over_ns",
      [](const std::string& stage, std::uint32_t count, std::uint64_t pause_ns) {
        const py::gil_scoped_release released;
        return bench::hand_over_ns(stage, count, pause_ns);
      },
      py::arg("stage"), py::arg("count"), py::arg("pause_ns"),
      "How long each of `count` items took from producer to sleeping consumer, in nanoseconds.");
}
