#include "bindings/replay.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "bindings/config.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"
#include "core/memory/checksum.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Between looks for Ctrl-C.
constexpr std::uint64_t kUsesPerSlice = 1U << 20;

// Returns what EchoBuffer and EchoQueue make of a configuration, for a plan that needs `room` slots beyond its capacity.
PlanConfig plan_config(py::handle config, std::uint32_t batch_rows, std::uint32_t room) {
  const auto capacity = option<std::uint32_t>(config, "capacity");
  const std::uint64_t steps = option<std::optional<std::uint64_t>>(config, "steps_per_epoch").value_or(0);
  return {.capacity = capacity,
          .slots = capacity + room,
          .factor = option<double>(config, "most_uses"),
          .seed = option<std::uint64_t>(config, "seed"),
          .unique_in_batch = option<bool>(config, "unique_in_batch"),
          .iteration_uses = steps * batch_rows,
          .min_uses = option<std::uint32_t>(config, "min_uses"),
          .max_age = max_age(config),
          .batch_rows = batch_rows,
          .replay = option<DecisionLog>(config, "replay")};
}

std::span<const std::byte> bytes_of(const py::array& array) {
  return {static_cast<const std::byte*>(array.data()), static_cast<std::size_t>(array.nbytes())};
}

// Returns the sum of the checksums of the rows, each with its number.
std::uint64_t checksum_of_rows(const py::array_t<std::uint8_t>& rows, const py::array_t<std::int64_t>& numbers) {
  const std::span<const std::byte> bytes = bytes_of(rows);
  const std::span<const std::int64_t> seeds(numbers.data(), static_cast<std::size_t>(numbers.size()));
  const std::size_t row_bytes = seeds.empty() ? 0 : bytes.size() / seeds.size();
  return without_gil(true, [&] {
    return sum_in_parallel(seeds.size(), row_bytes, [&](std::size_t begin, std::size_t end) {
      std::uint64_t sum = 0;
      for (std::size_t i = begin; i < end; ++i) {
        sum += checksum(bytes.subspan(i * row_bytes, row_bytes), static_cast<std::uint64_t>(seeds[i]));
      }
      return sum;
    });
  });
}

}  // namespace

bool ReplayObject::run() {
  for (;;) {
    const Outcome outcome = without_gil(true, [this] { return replay_.advance(kUsesPerSlice); });
    if (outcome != Outcome::kEmpty) {
      return outcome == Outcome::kOk;
    }
    if (PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
  }
}

void register_replay(py::module_& module) {
  py::class_<ReplayObject>(module, "Replay", "A plan that is brought to the position of a saved state.")
      .def(py::init(
               [](const py::object& config, std::uint32_t room, std::uint64_t epoch, std::optional<std::uint64_t> items,
                  const std::vector<std::pair<std::uint64_t, std::uint64_t>>& passes, std::uint64_t open_items,
                  bool ended, bool feed_all, std::uint64_t iterations, std::uint64_t batches, std::uint32_t min_rows) {
                 const auto rows = option<std::optional<std::uint32_t>>(config, "batch_size").value_or(1);
                 PlanPosition position{.epoch = epoch,
                                       .items = items.value_or(kUnknown),
                                       .passes = {},
                                       .open_items = open_items,
                                       .ended = ended,
                                       .feed_all = feed_all,
                                       .iterations = iterations,
                                       .batches = batches,
                                       .min_rows = min_rows};
                 for (const auto& [count, length] : passes) {
                   position.passes.push_back({.passes = count, .items = length});
                 }
                 return std::make_unique<ReplayObject>(plan_config(config, rows, room), rows, std::move(position));
               }),
           py::arg("config"), py::kw_only(), py::arg("room"), py::arg("epoch"), py::arg("items"), py::arg("passes"),
           py::arg("open_items"), py::arg("ended"), py::arg("feed_all"), py::arg("iterations"), py::arg("batches"),
           py::arg("min_rows"))
      .def("run", &ReplayObject::run, "Go to the position. Return False if there is none.")
      .def_property_readonly(
          "fed", [](ReplayObject& self) { return self.plan().fed(); }, "Items that the plan was fed.")
      .def_property_readonly("passes_fed", &ReplayObject::passes_fed, "Passes whose end it was fed.")
      .def_property_readonly(
          "resident", [](ReplayObject& self) { return self.plan().resident(); }, "Items in the pool.")
      .def_property_readonly(
          "numbers",
          [](ReplayObject& self) {
            std::vector<std::int64_t> numbers;
            self.plan().each_item([&](std::uint32_t /*slot*/, std::uint64_t number) {
              numbers.push_back(static_cast<std::int64_t>(number));
            });
            std::ranges::sort(numbers);
            return py::array_t<std::int64_t>(static_cast<py::ssize_t>(numbers.size()), numbers.data());
          },
          "Numbers of the items that it holds, ascending.");
  module.def("checksum_of_rows", &checksum_of_rows, py::arg("rows"), py::arg("numbers"),
             "The checksum of the items of a state, rows of bytes.");
  module.def(
      "checksum",
      [](const py::array& array) {
        const std::span<const std::byte> bytes = bytes_of(array);
        return without_gil(bytes.size() >= kGilFreeBytes, [bytes] { return checksum(bytes, 0); });
      },
      py::arg("array"), "The checksum of the bytes of a C-contiguous array.");
}

}  // namespace pyecho::bindings
