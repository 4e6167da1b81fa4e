// The extension module pyecho._core.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>

#include "bindings/encoding.hpp"
#include "bindings/numpy_api.hpp"
#include "bindings/registration.hpp"
#include "core/memory/machine.hpp"
#include "core/plan/echo_factor.hpp"
#include "core/plan/permutation.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace {

// Sets an ImportError in a sub-interpreter. NumPy refuses these as well, and its state and pyecho's types would be
// shared.
bool refuse_subinterpreter() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) {
    return false;
  }
  PyErr_SetString(
      PyExc_ImportError,
      "pyecho does not work in a sub-interpreter, because NumPy does not; import it in the main interpreter, "
      "and use threads or processes there");
  return true;
}

int pybind11_exec__core(PyObject* module);

int execute(PyObject* module) { return refuse_subinterpreter() ? -1 : pybind11_exec__core(module); }

}  // namespace

// Same as PYBIND11_MODULE, but looks for a sub-interpreter before anything else: the set-up of pybind11 hangs there in
// Python 3.11. From 3.13 on Python calls this function in the main interpreter, and only execute() in the other.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): Python looks for this name
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  PYBIND11_CHECK_PYTHON_VERSION
  if (refuse_subinterpreter()) {
    return nullptr;
  }
  try {
    py::detail::ensure_internals();
    // Declared fit for all interpreters, because Python's own refusal would come first and name no remedy.
    static auto slots =
        py::detail::init_slots(&execute, py::mod_gil_not_used(), py::multiple_interpreters::per_interpreter_gil());
    static PyModuleDef definition{};
    definition.m_base = PyModuleDef_HEAD_INIT;
    definition.m_name = "_core";
    definition.m_slots = slots.data();
    return PyModuleDef_Init(&definition);
  }
  PYBIND11_CATCH_INIT_EXCEPTIONS
  return nullptr;
}

namespace {

PYBIND11_MODULE_EXEC(_core, module) {
  using namespace pyecho::bindings;

  module.doc() = "The native parts of pyecho. Use them through the package.";
  import_numpy();
  register_errors(module);
  register_exit(module);
  register_sharing(module);
  register_slot_plan(module);
  register_checksums(module);
  register_iterator(module);
  register_stage();
  register_turns(module);
  register_reservation(module);
  register_ops(module);
  register_uploads(module);
  register_torch_memory(module);
  register_example_stage(module);
  register_slot_writer(module);
  register_object_stage(module);
  register_trace(module);

  module.def(
      "uses_of_pass", [](std::uint64_t items, double factor) { return pyecho::EchoFactor(factor).uses_of_pass(items); },
      py::arg("items"), py::arg("factor"), "Return the number of uses of a pass of `items` items.");
  module.def(
      "permuted",
      [](std::uint64_t size, std::uint64_t seed, std::uint64_t epoch, std::uint64_t begin, std::uint64_t end,
         std::uint64_t step) {
        if (size > pyecho::Permutation::kMaxSize || end > size || begin > end || step < 1) {
          throw py::value_error("there are no such places");
        }
        const pyecho::Permutation permutation(std::max<std::uint64_t>(size, 1), seed, epoch);
        return array_of<std::int64_t>((end - begin + step - 1) / step,
                                      [&](std::size_t i) { return permutation(begin + i * step); });
      },
      py::arg("size"), py::arg("seed"), py::arg("epoch"), py::arg("begin"), py::arg("end"), py::arg("step"),
      "Places begin, begin + step, ... below end of a seeded permutation of range(size).");
  module.def(
      "build_info",
      [] {
        return py::dict("version"_a = PYECHO_VERSION, "compiler"_a = PYECHO_COMPILER,
                        "build_type"_a = PYECHO_BUILD_TYPE);
      },
      "How this extension was built.");
  module.def("available_cores", &pyecho::machine_cores,
             "Return how many cores this process may use, its control groups counted.");
  module.def("memory_bytes", &pyecho::machine_bytes, "Return the memory it may have, swap included.");
  module.def("memory_nodes", [] { return pyecho::memory_nodes(); }, "Return the numbers of the NUMA nodes it may use.");
}

}  // namespace
