// ExampleStage: construction, and the Python bindings.
#include "bindings/stages/buffer.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "bindings/encoding.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"
#include "core/stage/buffer_sizes.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

constexpr const char* kLessMemory = "lower shuffle_buffer, batch_size or prefetch";

// Returns the leaves of a row of a batch. See `rows` of the constructor.
std::vector<LeafSpec> row_leaves(const Structure& structure, const py::list& rows) {
  std::vector<LeafSpec> leaves = structure.leaves();
  for (std::size_t leaf = 0; leaf < rows.size(); ++leaf) {
    if (!rows[leaf].is_none()) {
      leaves[leaf] = LeafSpec(py::tuple(rows[leaf])[0], leaves[leaf].path, leaves[leaf].name);
    }
  }
  return leaves;
}

// Adds the leaves of the structure to the configuration, and what makes rows of them.
EchoConfig with_leaves(EchoConfig config, const Structure& structure, const py::list& rows, const py::object& ragged) {
  config.leaves = formats_of(structure);
  for (std::size_t leaf = 0; leaf < rows.size(); ++leaf) {
    if (!rows[leaf].is_none()) {
      set_program(config, leaf, rows[leaf].cast<std::pair<py::object, std::shared_ptr<ops::Program>>>().second);
    }
  }
  if (!ragged.is_none()) {
    for (std::size_t leaf = 0; const auto& pad : ragged.attr("pads").cast<std::vector<std::string>>()) {
      const std::span bytes = std::as_bytes(std::span(pad));
      config.leaves[leaf++].pad.assign(bytes.begin(), bytes.end());
    }
  }
  std::size_t needed = 0;
  try {
    needed = min_bytes_of(config);
  } catch (const std::length_error& error) {
    raise(errors().config_error, std::string(error.what()) + "; " + kLessMemory);
  }
  if (needed > config.max_bytes) {
    raise(errors().config_error, "the slots and batches need " + readable_bytes(needed) + ", but max_bytes is " +
                                     readable_bytes(config.max_bytes) + "; " + kLessMemory + ", or raise max_bytes");
  }
  return config;
}

}  // namespace

std::vector<LeafFormat> formats_of(const Structure& structure) {
  std::vector<LeafFormat> formats;
  for (const LeafSpec& leaf : structure.leaves()) {
    formats.push_back(leaf.variable.axes > 0 ? LeafFormat::of_variable(leaf.variable) : leaf.size_bytes);
  }
  if (structure.has_references()) {
    formats.emplace_back(sizeof(ReferenceTable::Entry));
  }
  return formats;
}

ExampleStage::ExampleStage(const py::object& spec, const py::object& node_of, const py::object& config,
                           std::string name, bool batched, py::object to_array, py::object from_array,
                           py::object info_type, py::object new_memory, std::shared_ptr<Uploads> uploads,
                           const py::list& rows, const py::object& ragged)
    : PyStage(std::move(name)),
      structure_(spec, node_of),
      row_leaves_(row_leaves(structure_, rows)),
      to_array_(std::move(to_array)),
      from_array_(std::move(from_array)),
      info_type_(std::move(info_type)),
      new_memory_(std::move(new_memory)),
      ragged_(ragged.is_none() ? ragged : ragged.attr("make")),
      batched_(batched),
      has_references_(structure_.has_references()),
      delivery_(new_memory_.is_none() ? Delivery::kLent
                : uploads != nullptr  ? Delivery::kSent
                                      : Delivery::kGiven),
      config_(with_leaves(config_of(config), structure_, rows, ragged)),
      references_(config_.plan.min_uses > 0) {
  if (!new_memory_.is_none()) {
    config_.uploads = std::move(uploads);
    config_.batch_memory = [this](std::size_t size_bytes, Upload& upload) {
      const py::gil_scoped_acquire gil;
      return this->new_memory(size_bytes, upload);
    };
  }
  try {  // touches every page, which is slow for a large pool
    core_ = without_gil(true, [this] { return std::make_shared<EchoBuffer>(config_); });
  } catch (const std::bad_alloc&) {
    raise(PyExc_MemoryError, "the system has no memory for the " + readable_bytes(min_bytes_of(config_)) +
                                 " that slots and batches need; " + kLessMemory);
  }
}

std::vector<std::size_t> ExampleStage::batch_offsets() const {
  std::vector<std::size_t> offsets;
  offsets.reserve(structure_.leaves().size());
  for (std::size_t leaf = 0; leaf < structure_.leaves().size(); ++leaf) {
    offsets.push_back(core_->layout().leaves()[leaf].batch_offset);
  }
  return offsets;
}

// ---------------------------------------------------------------- garbage collection and registration

int ExampleStage::traverse(visitproc visit, void* arg) const {
  Py_VISIT(to_array_.ptr());
  Py_VISIT(from_array_.ptr());
  Py_VISIT(info_type_.ptr());
  Py_VISIT(new_memory_.ptr());
  Py_VISIT(ragged_.ptr());
  return references_.traverse(visit, arg);
}

void ExampleStage::drop_items() {
  pending_ = py::object();
  held_.reset();
  references_.clear();
}

namespace {

PyTypeObject* example_stage_type = nullptr;

template <class Object, class... Arguments>
auto shared_init() {
  return py::init(
      [](Arguments... arguments) { return std::make_shared<Object>(std::forward<Arguments>(arguments)...); });
}

const std::shared_ptr<ExampleStage>& buffer_of(PyObject* self) {
  if (PyObject_TypeCheck(self, example_stage_type) == 0 || native_of<ExampleStage>(self) == nullptr) {
    std::ignore = py::handle(self).cast<ExampleStage&>();  // raises
  }
  return reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder().holder<std::shared_ptr<ExampleStage>>();
}

// put(), put_batch() and reserve() are plain methods of CPython's: pybind11's cost more than all else, and on a
// free-threaded Python it takes a lock of its registry in each call of a function, so that threads would wait for each
// other.
using Given = std::array<PyObject*, 2>;

// Returns the arguments of these names, or null for those left out. Raises TypeError.
Given arguments_of(std::array<const char*, 2> known, const char* shown, std::size_t least, PyObject* const* arguments,
                   Py_ssize_t positional, PyObject* names) {
  Given given{};
  bool fits = std::cmp_less_equal(positional, given.size());
  std::copy_n(arguments, fits ? positional : 0, given.begin());
  for (Py_ssize_t i = 0; fits && names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* const name = PyTuple_GET_ITEM(names, i);
    const bool is_first = PyUnicode_CompareWithASCIIString(name, known[0]) == 0;
    PyObject*& place = given.at(is_first ? 0 : 1);
    fits = place == nullptr && (is_first || PyUnicode_CompareWithASCIIString(name, known[1]) == 0);
    place = arguments[positional + i];
  }
  if (!fits || std::ranges::count(given.begin(), given.begin() + least, nullptr) > 0) {
    PyErr_Format(PyExc_TypeError, "the arguments must be %s", shown);
    throw py::error_already_set();
  }
  return given;
}

std::optional<double> timeout_of(PyObject* given) {
  if (given == nullptr || given == Py_None) {
    return std::nullopt;
  }
  const double timeout_s = PyFloat_AsDouble(given);
  throw_if(timeout_s == -1 && PyErr_Occurred() != nullptr);
  return timeout_s;
}

template <bool kBatched>
PyObject* put(PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* names) {
  constexpr const char* kItem = kBatched ? "batch" : "example";
  constexpr const char* kShown = kBatched ? "(batch, timeout=None)" : "(example, timeout=None)";
  try {
    const Given given = arguments_of({kItem, "timeout"}, kShown, 1, arguments, positional, names);
    buffer_of(self)->put(given[0], kBatched, timeout_of(given[1]));
    Py_RETURN_NONE;
  } catch (...) {
    set_caught();
  }
  return nullptr;
}

PyObject* reserve(PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* names) {
  try {
    const Given given =
        arguments_of({"timeout", "shapes"}, "(timeout=None, shapes={})", 0, arguments, positional, names);
    if (given[1] != nullptr && PyDict_Check(given[1]) == 0) {
      raise(PyExc_TypeError, "shapes must be a dict, got " + std::string(py::repr(given[1])));
    }
    const std::shared_ptr<ExampleStage>& buffer = buffer_of(self);
    const auto shapes = py::reinterpret_borrow<py::dict>(given[1]);
    return make_reservation(buffer, timeout_of(given[0]), shapes).release().ptr();
  } catch (...) {
    set_caught();
  }
  return nullptr;
}

void add_methods(const py::object& type) {
  const auto method = [](auto* function, const char* name, const char* text) {
    auto* const plain = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
    return PyMethodDef{name, plain, METH_FASTCALL | METH_KEYWORDS, text};
  };
  static std::array methods{
      method(
          put<false>, "put",
          "put($self, /, example, timeout=None)\n--\n\n"
          "Copy one example into the buffer; wait while every slot is in use.\n\n"
          "Raises SpecMismatch (nothing was taken), PutTimeout, Closed. Any number of threads may put; the order of\n"
          "examples is the order in which they obtained their slots. An array is copied before put returns."),
      method(put<true>, "put_batch",
             "put_batch($self, /, batch, timeout=None)\n--\n\n"
             "Put every row of a batch: the nest of an example whose leaves have one more, leading axis of equal "
             "length.\n\nRaises as put(); PutTimeout says how many rows were taken before the time was up."),
      method(reserve, "reserve",
             "reserve($self, /, timeout=None, shapes={})\n--\n\n"
             "Obtain a slot and write the example into it in place:\n\n"
             "    with buffer.reserve() as views:\n"
             "        views['image'][...] = ...\n\n"
             "Leaving the block commits the example, an exception aborts it. The views must not be written to "
             "afterwards. Leaves of variable size need their shapes: reserve(shapes={'image': (480, 640, 3)}).")};
  for (PyMethodDef& each : methods) {
    type.attr(each.ml_name) = owned(PyDescr_NewMethod(example_stage_type, &each));
  }
}

}  // namespace

void register_example_stage(py::module_& module) {
  py::class_<ExampleStage, Stage, std::shared_ptr<ExampleStage>> type(
      module, "ExampleStage", py::custom_type_setup(collect_cycles<ExampleStage>),
      "The native stage of example echoing.");
  bind_stage(type);
  example_stage_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  add_methods(type);
  type.def(shared_init<ExampleStage, const py::object&, const py::object&, const py::object&, std::string, bool,
                       py::object, py::object, py::object, py::object, std::shared_ptr<Uploads>, const py::list&,
                       const py::object&>(),
           py::arg("spec"), py::arg("node_of"), py::arg("config"), py::kw_only(), py::arg("name"), py::arg("batched"),
           py::arg("to_array"), py::arg("from_array"), py::arg("info_type"), py::arg("new_memory"),
           py::arg("uploads") = py::none(), py::arg("rows") = py::list(), py::arg("ragged") = py::none())
      .def_property_readonly("_batch_offsets", guarded<ExampleStage>(&ExampleStage::batch_offsets))
      .def("_reserve_slots", guarded<ExampleStage>(&ExampleStage::reserve_slots), py::arg("most"), py::kw_only(),
           py::arg("wait"))
      .def("_commit_slots", guarded<ExampleStage>(&ExampleStage::commit_slots), py::arg("slots"), py::arg("ticket"),
           py::arg("references"))
      .def("_abort_slots", guarded<ExampleStage>(&ExampleStage::abort_slots), py::arg("slots"), py::arg("ticket"))
      .def_property_readonly("_shared_slots", guarded<ExampleStage>(&ExampleStage::shared_slots))
      .def("_expect_growth", guarded<ExampleStage>(&ExampleStage::expect_growth))
      .def_property_readonly(
          "capsule", guarded<ExampleStage>(&ExampleStage::capsule),
          "The buffer for native producers: a PyCapsule named \"pyecho.buffer.v1\" around a\n"
          "pyecho_buffer* (pyecho/pyecho.h, see get_include), with a reference of its own. Functions\n"
          "of producers may be called on it from any thread, with or without the GIL.\n\n"
          "Raises ConfigError if the spec has leaves that travel by reference.");
}

}  // namespace pyecho::bindings
