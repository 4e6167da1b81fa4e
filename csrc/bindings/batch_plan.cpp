#include "bindings/batch_plan.hpp"

#include <pybind11/numpy.h>

#include <cstdint>
#include <span>

#include "core/plan/batch_plan.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// One array of `size` elements, each made by `element(i)`.
template <class T, class Element>
py::array_t<T> array_of(std::size_t size, const Element& element) {
  py::array_t<T> array(static_cast<py::ssize_t>(size));
  T* const data = array.mutable_data();
  for (std::size_t i = 0; i < size; ++i) {
    data[i] = static_cast<T>(element(i));
  }
  return array;
}

// (slots of the examples to store, slots of the batch's rows, source index and use of each row); goes on to the next batch.
py::tuple take(BatchPlan& plan) {
  const std::span<const std::uint32_t> admitted = plan.admitted();
  const std::span<const Use> uses = plan.uses();
  py::tuple taken =
      py::make_tuple(array_of<std::int64_t>(admitted.size(), [&](std::size_t i) { return admitted[i]; }),
                     array_of<std::int64_t>(uses.size(), [&](std::size_t i) { return uses[i].slot; }),
                     array_of<std::int64_t>(uses.size(), [&](std::size_t i) { return uses[i].source_index; }),
                     array_of<std::int32_t>(uses.size(), [&](std::size_t i) { return uses[i].ordinal; }));
  plan.take();
  return taken;
}

}  // namespace

void register_batch_plan(py::module_& module) {
  py::class_<BatchPlan>(module, "BatchPlan", "Which examples go into which slots, and which slots make up each batch.")
      .def(py::init([](std::uint32_t batch_size, double factor, std::uint32_t capacity, std::uint64_t seed,
                       std::uint64_t epoch, bool unique_in_batch, bool drop_last) {
             return BatchPlan({.capacity = capacity,
                               .slots = 0,
                               .factor = factor,
                               .seed = seed,
                               .epoch = epoch,
                               .unique_in_batch = unique_in_batch},
                              batch_size, drop_last);
           }),
           py::kw_only(), py::arg("batch_size"), py::arg("factor"), py::arg("capacity"), py::arg("seed"),
           py::arg("epoch"), py::arg("unique_in_batch"), py::arg("drop_last"))
      .def_static("slots_for", &BatchPlan::slots_for, py::arg("capacity"), py::arg("batch_size"),
                  "slots_for(capacity, batch_size)\n\nHow many slots a plan deals in.")
      .def(
          "advance",
          [](BatchPlan& plan) -> py::object {
            const Outcome outcome = plan.advance();
            return outcome == Outcome::kEnd ? py::object(py::none()) : py::bool_(outcome == Outcome::kOk);
          },
          "advance()\n\nPlan on: True when a batch is complete, False when it needs examples, None at the end.")
      .def("offer", &BatchPlan::offer, py::arg("examples"), "offer(examples)\n\nSo many more have come.")
      .def("end_of_source", &BatchPlan::end_of_source, "end_of_source()\n\nNo more will come.")
      .def_property_readonly("resident", &BatchPlan::resident, "Examples in the pool.")
      .def("take", &take,
           "take()\n\n"
           "The planned batch: slots of the examples to store first, in source order, then slot, source index and use\n"
           "of each row.");
}

}  // namespace pyecho::bindings
