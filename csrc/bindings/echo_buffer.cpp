#include "bindings/echo_buffer.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/address.hpp"
#include "bindings/batch_iterator.hpp"
#include "bindings/copy_streams.hpp"
#include "bindings/errors.hpp"
#include "bindings/garbage.hpp"
#include "bindings/lease_object.hpp"
#include "bindings/reservation.hpp"
#include "bindings/waiting.hpp"
#include "cuda/pinning.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Shorter copies keep the GIL: giving it up and taking it back costs more, and a busy consumer may keep it for long.
constexpr std::size_t kGilFreeBytes = std::size_t{32} << 10;

// How often to look for batches that the device is done with, while waiting for one.
constexpr std::chrono::milliseconds kRetirementLook{1};

// Rows of a batch that are handed over together.
constexpr std::size_t kGroupRows = 32;

// Gives up the GIL for a stretch of native code, if asked to; taken back by hand (see take_gil).
class GilRelease {
 public:
  explicit GilRelease(bool wanted) : wanted_(wanted) { release(); }
  void release() { state_ = wanted_ ? PyEval_SaveThread() : nullptr; }
  void take_back() {
    if (state_ != nullptr) {
      take_gil(std::exchange(state_, nullptr));
    }
  }

 private:
  bool wanted_;
  PyThreadState* state_ = nullptr;
};

// A writable array on memory that `owner` keeps. Takes over the reference to `descr`.
py::object array_on(std::byte* data, PyArray_Descr* descr, const npy_intp* dims, int axes, py::handle owner) {
  PyObject* const array = PyArray_NewFromDescr(&PyArray_Type, descr, axes, const_cast<npy_intp*>(dims), nullptr, data,
                                               NPY_ARRAY_CARRAY, nullptr);
  if (array == nullptr) {
    throw py::error_already_set();
  }
  auto object = py::reinterpret_steal<py::object>(array);
  if (PyArray_SetBaseObject(as_array(array), owner.inc_ref().ptr()) != 0) {
    throw py::error_already_set();
  }
  return object;
}

// "1.5 MiB", and exactly how many bytes.
std::string readable_bytes(std::size_t bytes) {
  const char* unit = "KiB";
  double count = static_cast<double>(bytes) / 1024;
  for (const char* const larger : {"MiB", "GiB", "TiB"}) {
    if (count >= 1024) {
      count /= 1024;
      unit = larger;
    }
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s (%zu bytes)", count, unit, bytes);
  return text.data();
}

constexpr const char* kLessMemory = "lower capacity (shuffle_buffer), batch_size or prefetch";

EchoBufferConfig with_leaves(EchoBufferConfig config, const Structure& structure, bool with_info) {
  for (const LeafSpec& leaf : structure.leaves()) {
    config.leaf_bytes.push_back(leaf.size_bytes);
    config.with_info = config.with_info || with_info || leaf.by_reference;
  }
  std::size_t needed = 0;
  try {
    needed = EchoBuffer::min_bytes(config);
  } catch (const std::length_error& error) {
    raise(errors().config_error, std::string(error.what()) + "; " + kLessMemory);
  }
  if (needed > config.max_bytes) {
    raise(errors().config_error, "the slots and batches need " + readable_bytes(needed) + ", but max_bytes is " +
                                     readable_bytes(config.max_bytes) + "; " + kLessMemory + ", or raise max_bytes");
  }
  return config;
}

bool any_reference(const Structure& structure) {
  return std::ranges::any_of(structure.leaves(), [](const LeafSpec& leaf) { return leaf.by_reference; });
}

}  // namespace

EchoBufferObject::EchoBufferObject(std::shared_ptr<Structure> structure, EchoBufferConfig config, bool with_info,
                                   Adapter adapter, const DeviceMemory& memory)
    : structure_(std::move(structure)),
      adapter_(std::move(adapter)),
      with_info_(with_info),
      has_references_(any_reference(*structure_)),
      config_(with_leaves(std::move(config), *structure_, with_info)),
      references_(EchoFactor(config_.factor, config_.seed, config_.epoch)),
      pinning_(memory.pinning) {
  if (pinning_) {
    config_.batch_pages = pinning_->policy();
  }
  if (pinning_ && !memory.copy_streams.is_none()) {
    retirement_ = std::make_shared<cuda::Retirement>(pinning_->device());
    retire_ = retire_after_copies(retirement_, memory.copy_streams);
  }
  GilRelease gil(true);  // every page is touched here, which takes a while for a large pool
  std::exception_ptr failure;
  try {
    core_ = std::make_shared<EchoBuffer>(config_);
  } catch (...) {
    failure = std::current_exception();
  }
  gil.take_back();
  try {
    if (failure) {
      std::rethrow_exception(failure);
    }
  } catch (const std::bad_alloc&) {
    raise(PyExc_MemoryError, "the system has no memory for the " + readable_bytes(EchoBuffer::min_bytes(config_)) +
                                 " that slots and batches need; " + kLessMemory);
  }
  warned_of_pages_ = pinning_ && !pinning_->failure().empty();  // the maker of this object says so, once it is made
}

// ---------------------------------------------------------------- producers

Reservation EchoBufferObject::reserve(const Timeout& timeout) {
  Reservation reservation{};
  Outcome outcome = core_->try_reserve(reservation);
  if (outcome == Outcome::kFull) {
    outcome =
        wait_answering_signals(timeout.deadline, [&](Deadline slice) { return core_->reserve(reservation, slice); });
  }
  if (outcome == Outcome::kTimeout) {
    raise(errors().put_timeout, "no slot became free within " + std::to_string(timeout.seconds) +
                                    " s: the consumer takes batches too slowly, or not at all; take batches meanwhile, "
                                    "or raise the timeout" +
                                    timeout.progress);
  }
  if (outcome != Outcome::kOk) {
    raise_outcome(outcome, "EchoBuffer");
  }
  return reservation;
}

void EchoBufferObject::put(py::handle example, std::optional<double> timeout_s) {
  const ItemSource source(*structure_, example, ItemKind::kExample, adapter_.to_array);
  py::tuple references = has_references_ ? source.references(0) : py::tuple();
  const Reservation reservation = reserve(Timeout(timeout_s));
  if (has_references_) {
    try {
      references_.put(reservation.ticket, std::move(references));
    } catch (...) {
      abandon(&reservation, 1);
      throw;
    }
  }
  GilRelease gil(source.size_bytes() >= kGilFreeBytes);
  source.copy_row(0, core_->slot_data(reservation.slot), core_->layout());
  core_->commit(reservation);
  gil.take_back();
}

void EchoBufferObject::put_batch(py::handle batch, std::optional<double> timeout_s) {
  const ItemSource source(*structure_, batch, ItemKind::kBatch, adapter_.to_array);
  Timeout timeout(timeout_s);
  std::array<Reservation, kGroupRows> group{};
  std::size_t reserved = 0;  // in `group`, for the rows from `row` on
  std::size_t row = 0;
  GilRelease gil(source.size_bytes() >= kGilFreeBytes && !has_references_);
  while (row < source.rows()) {
    while (reserved < std::min(group.size(), source.rows() - row) &&
           core_->try_reserve(group[reserved]) == Outcome::kOk) {
      ++reserved;
    }
    if (reserved == 0) {  // full, or closed; nothing is held while this thread sleeps
      gil.take_back();
      timeout.progress = " (" + std::to_string(row) + " of " + std::to_string(source.rows()) + " rows were taken)";
      group[reserved++] = reserve(timeout);
      gil.release();
    }
    put_rows(source, row, group.data(), reserved);
    row += std::exchange(reserved, 0);
  }
  gil.take_back();
}

// Copies the rows from `row` on into these slots and hands them over together. GIL if there are references.
void EchoBufferObject::put_rows(const ItemSource& source, std::size_t row, const Reservation* reservations,
                                std::size_t count) {
  try {
    for (std::size_t i = 0; has_references_ && i < count; ++i) {
      references_.put(reservations[i].ticket, source.references(row + i));
    }
  } catch (...) {
    abandon(reservations, count);
    throw;
  }
  for (std::size_t i = 0; i < count; ++i) {
    source.copy_row(row + i, core_->slot_data(reservations[i].slot), core_->layout());
  }
  for (std::size_t i = 0; i < count; ++i) {
    core_->commit_quietly(reservations[i]);
  }
  core_->announce_committed(count);
}

// Memory ran out between reservation and commit. The order of references is lost with the items, so the input ends here.
void EchoBufferObject::abandon(const Reservation* reservations, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    core_->abort(reservations[i]);
  }
  core_->close();
}

void EchoBufferObject::fail(py::object error) {
  error = checked_failure(error);
  if (failure_.is_none() && !core_->stopped()) {  // after stop() nobody would ever let go of it
    failure_ = std::move(error);
  }
  close();
}

void EchoBufferObject::stop() {
  core_->stop();
  pending_.reset();
  clear();
}

std::vector<py::object> EchoBufferObject::slot_views(Reservation reservation, py::handle owner) const {
  std::vector<py::object> views;
  std::byte* const slot = core_->slot_data(reservation.slot);
  for (std::size_t i = 0; i < structure_->leaves().size(); ++i) {
    const LeafSpec& leaf = structure_->leaves()[i];
    views.push_back(array_on(slot + core_->layout().leaves()[i].slot_offset,
                             as_descr(py::object(leaf.dtype).release().ptr()), leaf.shape.data(),
                             static_cast<int>(leaf.shape.size()), owner));
  }
  return views;
}

// ---------------------------------------------------------------- consumer

Outcome EchoBufferObject::acquire(Lease& lease) {
  if (!retirement_) {
    const Outcome outcome = core_->try_acquire(lease);
    return outcome != Outcome::kEmpty
               ? outcome
               : wait_answering_signals(kNever, [&](Deadline slice) { return core_->acquire(lease, slice); });
  }
  // Batches that the device still reads come back when somebody looks, and that is here.
  return wait_answering_signals(kNever, [&](Deadline slice) {
    for (;;) {
      retirement_->poll();
      const std::size_t waiting = retirement_->waiting();
      const bool coming = waiting > retirement_->held_back();  // without anything that the consumer has to do
      const Deadline look = waiting > 0 ? std::min(slice, Clock::now() + kRetirementLook) : slice;
      const Outcome outcome = core_->acquire(lease, look);
      if (outcome == Outcome::kExhausted && coming) {
        std::this_thread::sleep_until(look);
      } else if (outcome != Outcome::kTimeout) {
        return outcome;
      }
      if (look == slice) {
        return Outcome::kTimeout;
      }
    }
  });
}

PyObject* EchoBufferObject::next_reference() {
  Lease lease = std::move(pending_);
  if (!lease) {
    const Outcome outcome = acquire(lease);
    if (outcome == Outcome::kEnd) {
      if (!failure_.is_none()) {
        raise_object(std::exchange(failure_, py::none()));
      }
      return nullptr;
    }
    if (outcome == Outcome::kExhausted) {
      raise_exhausted();
    }
    if (outcome != Outcome::kOk) {
      raise_outcome(outcome, "EchoBuffer");
    }
  }
  warn_of_growth(lease);
  return make_batch(std::move(lease)).release().ptr();
}

// Warns once of batches that are added, and once of those that could not be pinned. Where a warning is an error, the
// batch comes with the next call.
void EchoBufferObject::warn_of_growth(Lease& lease) {
  const auto warn = [&](PyObject* category, const std::string& message) {
    if (PyErr_WarnEx(category, message.c_str(), 1) != 0) {
      pending_ = std::move(lease);
      throw py::error_already_set();
    }
  };
  if ((warned_of_growth_ && (warned_of_pages_ || !pinning_)) || core_->stats().grown_blocks == 0) {
    return;
  }
  if (!warned_of_growth_) {
    warned_of_growth_ = true;
    warn(PyExc_ResourceWarning,
         "the consumer keeps batches, so pyecho allocates more of them; drop batches after use, or set max_bytes to "
         "bound the memory");
  }
  if (pinning_ && !warned_of_pages_) {
    if (const std::string failure = pinning_->failure(); !failure.empty()) {
      warned_of_pages_ = true;
      warn(PyExc_RuntimeWarning,
           "batches that were added stay in pageable memory, which makes copies to the device slower: " + failure);
    }
  }
}

py::object EchoBufferObject::make_batch(Lease lease) {
  std::byte* const data = lease.data();
  const std::uint32_t rows = lease.rows();
  const SlotLayout& layout = core_->layout();
  const py::object owner = make_lease_object(std::move(lease), retire_);
  py::object source_index;
  std::vector<py::tuple> references;
  if (layout.with_info()) {
    const npy_intp dims[] = {static_cast<npy_intp>(rows)};
    source_index = array_on(data + layout.source_index_offset(), PyArray_DescrFromType(NPY_INT64), dims, 1, owner);
  }
  if (has_references_) {
    const auto* const indices = reinterpret_cast<const std::int64_t*>(data + layout.source_index_offset());
    for (std::uint32_t row = 0; row < rows; ++row) {
      references.push_back(references_.take(static_cast<std::uint64_t>(indices[row])));
    }
  }
  const std::vector<LeafSpec>& leaves = structure_->leaves();
  std::array<py::object, Structure::kInlineLeaves> few_objects;
  std::vector<py::object> many_objects(leaves.size() > few_objects.size() ? leaves.size() : 0);
  py::object* const objects = many_objects.empty() ? few_objects.data() : many_objects.data();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    objects[i] = leaves[i].by_reference ? py::object(reference_list(i, references))
                                        : array_leaf(i, data + layout.leaves()[i].batch_offset, rows, owner);
  }
  py::object batch = structure_->unflatten(objects);
  if (!with_info_) {
    return batch;
  }
  const npy_intp dims[] = {static_cast<npy_intp>(rows)};
  py::object use = array_on(data + layout.use_offset(), PyArray_DescrFromType(NPY_INT32), dims, 1, owner);
  return py::make_tuple(std::move(batch), adapter_.info_type(std::move(source_index), std::move(use)));
}

py::object EchoBufferObject::array_leaf(std::size_t index, std::byte* data, std::uint32_t rows,
                                        py::handle owner) const {
  const LeafSpec& leaf = structure_->leaves()[index];
  std::array<npy_intp, NPY_MAXDIMS> dims{};
  dims[0] = static_cast<npy_intp>(rows);
  std::ranges::copy(leaf.shape, dims.begin() + 1);
  py::object array = array_on(data, as_descr(py::object(leaf.dtype).release().ptr()), dims.data(),
                              static_cast<int>(leaf.shape.size()) + 1, owner);
  return adapter_.from_array.is_none() ? array : adapter_.from_array(std::move(array), index);
}

// The list of one reference leaf; `index` counts all leaves, rows hold the reference leaves alone.
py::list EchoBufferObject::reference_list(std::size_t index, const std::vector<py::tuple>& rows) const {
  const std::vector<LeafSpec>& leaves = structure_->leaves();
  const auto position =
      static_cast<std::size_t>(std::count_if(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(index),
                                             [](const LeafSpec& leaf) { return leaf.by_reference; }));
  py::list list;
  for (const py::tuple& row : rows) {
    list.append(row[position]);
  }
  return list;
}

void EchoBufferObject::raise_exhausted() const {
  const EchoBufferStats stats = core_->stats();
  const std::string refusal = core_->refusal();
  const bool ours = refusal.empty();  // the limit, and not the system's or the device's
  const std::size_t held_back = retirement_ ? retirement_->held_back() : 0;
  raise(errors().buffer_exhausted,
        "all " + std::to_string(stats.batch_blocks) + " batches" +
            (ours ? " that max_bytes = " + readable_bytes(config_.max_bytes) + " allows" : "") +
            " are held by the consumer (" + std::to_string(stats.outstanding_leases) + " outstanding leases" +
            (held_back == 0 ? ")"
                            : "; " + std::to_string(held_back) +
                                  " of them were dropped while a CUDA graph was captured, and cannot be used again "
                                  "before the capture ends)") +
            (ours ? "" : ", and none can be added: " + refusal) +
            "; drop batches you no longer need (then go on), copy what you keep, or " +
            (ours ? "raise max_bytes" : "make room for more"));
}

py::dict EchoBufferObject::stats() const {
  const EchoBufferStats stats = core_->stats();
  py::dict dict;
  dict["fresh"] = stats.fresh;
  dict["emitted"] = stats.emitted;
  dict["batches"] = stats.batches;
  dict["bytes_gathered"] = stats.bytes_gathered;
  dict["consumer_wait_ns"] = stats.consumer_wait_ns;
  dict["downstream_ns"] = stats.downstream_ns;
  dict["resident"] = stats.resident;
  dict["outstanding_leases"] = stats.outstanding_leases;
  dict["host_allocations"] = stats.batch_blocks + 1;  // and the slots
  return dict;
}

// ---------------------------------------------------------------- garbage collection and registration

int EchoBufferObject::traverse(visitproc visit, void* arg) const {
  Py_VISIT(failure_.ptr());
  Py_VISIT(adapter_.to_array.ptr());
  Py_VISIT(adapter_.from_array.ptr());
  Py_VISIT(adapter_.info_type.ptr());
  return references_.traverse(visit, arg);
}

void EchoBufferObject::clear() {
  failure_ = py::none();
  references_.clear();
}

void register_echo_buffer(py::module_& module) {
  py::class_<EchoBufferObject, std::shared_ptr<EchoBufferObject>>(
      module, "EchoBuffer", collect_cycles<EchoBufferObject>(), "The native stage of example echoing.")
      .def(py::init([](std::shared_ptr<Structure> structure, std::uint32_t batch_size, double factor,
                       std::uint32_t capacity, std::uint64_t seed, std::uint64_t epoch, bool unique_in_batch,
                       bool drop_last, std::uint32_t prefetch, std::uint32_t threads, std::uint32_t burst,
                       std::optional<std::size_t> max_bytes, std::uint32_t held,
                       const std::shared_ptr<cuda::Pinning>& pinning, py::object copy_streams, bool with_info,
                       py::object to_array, py::object from_array, py::object info_type) {
             EchoBufferConfig config;
             config.batch_rows = batch_size;
             config.capacity = capacity;
             config.factor = factor;
             config.seed = seed;
             config.epoch = epoch;
             config.unique_in_batch = unique_in_batch;
             config.drop_last = drop_last;
             config.prefetch = prefetch;
             config.threads = threads;
             config.burst = burst;
             config.max_bytes = max_bytes.value_or(kUnlimited);
             config.held = held;
             return std::make_shared<EchoBufferObject>(
                 std::move(structure), std::move(config), with_info,
                 Adapter{std::move(to_array), std::move(from_array), std::move(info_type)},
                 DeviceMemory{pinning, std::move(copy_streams)});
           }),
           py::arg("structure"), py::kw_only(), py::arg("batch_size"), py::arg("factor"), py::arg("capacity"),
           py::arg("seed"), py::arg("epoch"), py::arg("unique_in_batch"), py::arg("drop_last"), py::arg("prefetch"),
           py::arg("threads"), py::arg("burst"), py::arg("max_bytes"), py::arg("held"), py::arg("pinning"),
           py::arg("copy_streams"), py::arg("with_info"), py::arg("to_array"), py::arg("from_array"),
           py::arg("info_type"))
      .def("put", &EchoBufferObject::put, py::arg("example"), py::arg("timeout") = py::none(),
           "put(example, timeout=None)\n\n"
           "Copy one example into the buffer; wait while every slot is in use.\n\n"
           "Raises SpecMismatch (nothing was taken), PutTimeout, Closed. Any number of threads may put; the order of\n"
           "examples is the order in which they obtained their slots. An array is copied before put returns.")
      .def("put_batch", &EchoBufferObject::put_batch, py::arg("batch"), py::arg("timeout") = py::none(),
           "put_batch(batch, timeout=None)\n\n"
           "Put every row of a batch: the nest of an example whose leaves have one more, leading axis of equal "
           "length.\n\n"
           "Raises as put(); PutTimeout says how many rows were taken before the time was up.")
      .def(
          "reserve",
          [](const py::object& self, std::optional<double> timeout) { return make_reservation(self, timeout); },
          py::arg("timeout") = py::none(),
          "reserve(timeout=None)\n\n"
          "Obtain a slot and write the example into it in place:\n\n"
          "    with buffer.reserve() as views:\n"
          "        views['image'][...] = ...\n\n"
          "Leaving the block commits the example, an exception aborts it. The views must not be written to afterwards.")
      .def("close", &EchoBufferObject::close,
           "close()\n\nNo more input. What is in the buffer drains, then iteration ends. Idempotent.")
      .def("fail", &EchoBufferObject::fail, py::arg("error"),
           "fail(error)\n\nAs close(), and once everything has been emitted the consumer receives this exception.")
      .def("stop", &EchoBufferObject::stop,
           "stop()\n\nAbandon everything: threads end, every wait ends with Closed. Views stay valid. Idempotent.")
      .def("_stats", &EchoBufferObject::stats)
      .def("__iter__", [](const py::object& self) { return make_batch_iterator(self, py::none()); })
      .def("_iterate", &make_batch_iterator, py::arg("owner"));
}

}  // namespace pyecho::bindings
