#include "core/memory/pad_rows.hpp"

#include <pybind11/numpy.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bindings/encoding.hpp"
#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

namespace {

void pad_rows(const py::array& out, const py::array& elements, const Indices& shapes, const py::array& pad) {
  constexpr int kWhole = py::array::c_style;
  const auto axes = static_cast<std::size_t>(out.ndim() - 1);
  if (shapes.ndim() != 2 || out.ndim() < 2 || shapes.shape(0) != out.shape(0) || shapes.shape(1) != out.ndim() - 1 ||
      (out.flags() & elements.flags() & kWhole) == 0 || out.itemsize() != elements.itemsize() ||
      pad.nbytes() != out.itemsize() || pad.nbytes() == 0) {
    throw py::value_error("rows of other shapes or elements");
  }
  const std::vector<std::int64_t> places(out.shape() + 1, out.shape() + out.ndim());
  const std::span rows(shapes.data(), static_cast<std::size_t>(shapes.size()));
  std::uint64_t total = 0;
  for (std::size_t row = 0; row < rows.size(); row += axes) {
    std::uint64_t size = 1;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const std::int64_t extent = rows[row + axis];
      if (extent < 0 || extent > places[axis]) {
        throw py::value_error("a row is larger than its place");
      }
      size *= static_cast<std::uint64_t>(extent);
    }
    total += size;
  }
  if (total != static_cast<std::uint64_t>(elements.size())) {
    throw py::value_error("rows of another number of elements");
  }
  const RowPadding padding(places, {static_cast<const std::byte*>(pad.data()), static_cast<std::size_t>(pad.nbytes())});
  auto* to = static_cast<std::byte*>(const_cast<py::array&>(out).mutable_data());
  const auto* from = static_cast<const std::byte*>(elements.data());
  for (std::size_t row = 0; row < rows.size(); row += axes) {
    from = padding.write(to, from, rows.subspan(row, axes));
    to += padding.row_bytes();
  }
}

}  // namespace

void register_pad_rows(py::module_& module) {
  module.def(
      "pad_rows", &pad_rows, py::arg("out"), py::arg("elements"), py::arg("shapes"), py::arg("pad"),
      "Write rows, whose elements follow one another, into an array with places for the largest; fill the rest.");
}

}  // namespace pyecho::bindings
