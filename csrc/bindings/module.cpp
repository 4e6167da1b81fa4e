// The extension module pyecho._core.
#include <pybind11/pybind11.h>

#include "bindings/batch_iterator.hpp"
#include "bindings/batch_plan.hpp"
#include "bindings/bench.hpp"
#include "bindings/cuda.hpp"
#include "bindings/echo_buffer.hpp"
#include "bindings/echo_queue.hpp"
#include "bindings/errors.hpp"
#include "bindings/lease_object.hpp"
#include "bindings/numpy_api.hpp"
#include "bindings/reservation.hpp"
#include "bindings/sharing.hpp"
#include "bindings/structure.hpp"
#include "bindings/use_iterator.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_core, module) {
  using namespace pyecho::bindings;

  module.doc() = "The native parts of pyecho. Use them through the package.";
  import_numpy();
  register_errors(module);
  register_structure(module);
  register_sharing(module);
  register_cuda(module);
  register_batch_plan(module);
  register_lease(module);
  register_reservation(module);
  register_batch_iterator(module);
  register_echo_buffer(module);
  register_use_iterator(module);
  register_echo_queue(module);
  register_bench(module);

  module.def(
      "uses_of_first",
      [](std::uint64_t items, double factor, std::uint64_t seed, std::uint64_t epoch) {
        return pyecho::EchoFactor(factor, seed, epoch).uses_of_first(items);
      },
      py::arg("items"), py::arg("factor"), py::arg("seed"), py::arg("epoch"),
      "How many uses the first `items` items of an epoch have together.");
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
