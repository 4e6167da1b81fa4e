// The extension module pyecho._core.
#include <pybind11/pybind11.h>

#include "bindings/batch_plan.hpp"
#include "bindings/bench.hpp"
#include "bindings/echo_buffer.hpp"
#include "bindings/echo_queue.hpp"
#include "bindings/errors.hpp"
#include "bindings/exit.hpp"
#include "bindings/iterator.hpp"
#include "bindings/lease_object.hpp"
#include "bindings/numpy_api.hpp"
#include "bindings/reservation.hpp"
#include "bindings/sharing.hpp"
#include "bindings/stage.hpp"
#include "bindings/structure.hpp"
#include "bindings/turns.hpp"
#include "core/plan/echo_factor.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_core, module) {
  using namespace pyecho::bindings;

  module.doc() = "The native parts of pyecho. Use them through the package.";
  import_numpy();
  register_errors(module);
  register_exit(module);
  register_structure(module);
  register_sharing(module);
  register_batch_plan(module);
  register_lease(module);
  register_iterator(module);
  register_stage(module);
  register_turns(module);
  register_reservation(module);
  register_echo_buffer(module);
  register_echo_queue(module);
  register_bench(module);

  module.def(
      "uses_of_pass", [](std::uint64_t items, double factor) { return pyecho::EchoFactor(factor).uses_of_pass(items); },
      py::arg("items"), py::arg("factor"), "Return the number of uses of a pass of `items` items.");
  module.def(
      "build_info",
      [] {
        py::dict info;
        info["version"] = PYECHO_VERSION;
        info["compiler"] = PYECHO_COMPILER;
        info["build_type"] = PYECHO_BUILD_TYPE;
        return info;
      },
      "How this extension was built.");
}
