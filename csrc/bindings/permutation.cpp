// pyecho._core.permuted: places of a seeded permutation.
#include "core/plan/permutation.hpp"

#include <cstdint>

#include "bindings/encoding.hpp"
#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

void register_permutation(py::module_& module) {
  module.def(
      "permuted",
      [](std::uint64_t size, std::uint64_t seed, std::uint64_t epoch, std::uint64_t begin, std::uint64_t end,
         std::uint64_t step) {
        if (size > Permutation::kMaxSize || end > size || begin > end || step < 1) {
          throw py::value_error("there are no such places");
        }
        const Permutation permutation(std::max<std::uint64_t>(size, 1), seed, epoch);
        return array_of<std::int64_t>((end - begin + step - 1) / step,
                                      [&](std::size_t i) { return permutation(begin + i * step); });
      },
      py::arg("size"), py::arg("seed"), py::arg("epoch"), py::arg("begin"), py::arg("end"), py::arg("step"),
      "Places begin, begin + step, ... below end of a seeded permutation of range(size).");
}

}  // namespace pyecho::bindings
