// The extension module pyecho._core.
#include <pybind11/pybind11.h>

#include "bindings/numpy_api.hpp"
#include "bindings/registration.hpp"
#include "core/plan/echo_factor.hpp"

namespace py = pybind11;
using namespace py::literals;

PYBIND11_MODULE(_core, module) {
  using namespace pyecho::bindings;

  module.doc() = "The native parts of pyecho. Use them through the package.";
  import_numpy();
  register_errors(module);
  register_exit(module);
  register_sharing(module);
  register_batch_plan(module);
  register_checksums(module);
  register_iterator(module);
  register_stage(module);
  register_turns(module);
  register_reservation(module);
  register_echo_buffer(module);
  register_echo_queue(module);
  register_trace(module);
  register_arrow(module);
  register_bench(module);

  module.def(
      "uses_of_pass", [](std::uint64_t items, double factor) { return pyecho::EchoFactor(factor).uses_of_pass(items); },
      py::arg("items"), py::arg("factor"), "Return the number of uses of a pass of `items` items.");
  module.def(
      "build_info",
      [] {
        return py::dict("version"_a = PYECHO_VERSION, "compiler"_a = PYECHO_COMPILER,
                        "build_type"_a = PYECHO_BUILD_TYPE);
      },
      "How this extension was built.");
}
