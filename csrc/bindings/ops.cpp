// pyecho._core.Program: the operations on one leaf (pyecho/ops.py), made ready to run.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/encoding.hpp"
#include "bindings/errors.hpp"
#include "bindings/registration.hpp"
#include "core/ops/program.hpp"
#include "core/ops/transform.hpp"
#include "core/random.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// An Operation, in the order of its members.
using Plain = std::tuple<std::uint32_t, std::uint32_t, std::vector<std::uint32_t>, std::vector<std::uint64_t>,
                         std::vector<double>, bool, std::uint8_t>;

std::shared_ptr<ops::Program> make_program(std::uint8_t element, std::size_t element_bytes,
                                           std::vector<std::uint64_t> shape, const std::vector<Plain>& operations) {
  std::vector<ops::Operation> made;
  made.reserve(operations.size());
  for (const auto& [kind, draws, axes, sizes, numbers, nearest, to] : operations) {
    made.push_back({.kind = static_cast<ops::Kind>(kind),
                    .draws = draws,
                    .axes = axes,
                    .sizes = sizes,
                    .numbers = numbers,
                    .nearest = nearest,
                    .element = static_cast<ops::Element>(to)});
  }
  ops::ArrayType item{
      .element = static_cast<ops::Element>(element), .element_bytes = element_bytes, .shape = std::move(shape)};
  return naming(errors().config_error,
                [&] { return std::make_shared<ops::Program>(std::move(item), std::move(made)); });
}

py::array_t<std::uint8_t> run(const ops::Program& program, std::uint64_t use, const py::array& item,
                              std::uint64_t item_key, std::uint64_t ordinal) {
  const std::vector<std::uint64_t> shape(item.shape(), item.shape() + item.ndim());
  if (const std::string refusal = program.refusal(shape); !refusal.empty()) {
    raise(errors().spec_mismatch, refusal);
  }
  const ops::UseKey key{.use = use, .item = item_key, .ordinal = ordinal};
  ops::Transform transform(program, key, shape);
  py::array_t<std::uint8_t> made(static_cast<py::ssize_t>(transform.row_bytes()));
  auto* const to = reinterpret_cast<std::byte*>(made.mutable_data());
  const auto* const from = static_cast<const std::byte*>(item.data());
  // Vectors of cache lines, so that it is aligned.
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> scratch(transform.scratch_bytes() / sizeof(Line) + 1);
  {
    const py::gil_scoped_release release;
    transform.write(from, to, scratch[0].bytes.data(), false);
  }
  return made;
}

}  // namespace

void register_ops(py::module_& module) {
  py::class_<ops::Program, std::shared_ptr<ops::Program>>(module, "Program", py::is_final())
      .def(py::init(&make_program), py::arg("element"), py::arg("element_bytes"), py::arg("shape"),
           py::arg("operations"))
      .def_property_readonly(
          "element", [](const ops::Program& program) { return static_cast<unsigned>(program.output().element); },
          "Of a row.")
      .def_property_readonly(
          "shape", [](const ops::Program& program) { return program.output().shape; }, "Of a row.")
      .def("run", &run, py::arg("key"), py::arg("item"), py::arg("item_key") = 0, py::arg("ordinal") = 0,
           "Return the bytes of the row that the use `key` makes of an item, a C-contiguous array of the right dtype.");
  module.def(
      "key_of_use",
      [](std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream, std::uint64_t use) {
        return ops::key_of_use(seed_of_stream(seed, stream), epoch, use);
      },
      py::arg("seed"), py::arg("epoch"), py::arg("stream"), py::arg("use"),
      "Return the number from which operations draw for the use of this number in its stream and epoch.");
  module.def(
      "key_of_item",
      [](std::uint64_t seed, std::uint64_t pass, std::uint64_t stream, std::uint64_t item) {
        return ops::key_of_item(seed_of_stream(seed, stream), pass, item);
      },
      py::arg("seed"), py::arg("pass_number"), py::arg("stream"), py::arg("item"),
      "Return the number that orders the anchors of the item of this number in its stream and pass.");
}

}  // namespace pyecho::bindings
