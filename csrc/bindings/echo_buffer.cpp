// The life of EchoBufferObject, its producers' side, and what Python sees of it.
#include "bindings/echo_buffer.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/address.hpp"
#include "bindings/batch_iterator.hpp"
#include "bindings/copy_streams.hpp"
#include "bindings/errors.hpp"
#include "bindings/garbage.hpp"
#include "bindings/reservation.hpp"
#include "bindings/waiting.hpp"
#include "cuda/pinning.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Shorter copies keep the GIL: giving it up and taking it back costs more, and a busy consumer may keep it for long.
constexpr std::size_t kGilFreeBytes = std::size_t{32} << 10;

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
    retirement_ = std::make_shared<cuda::DeferredRelease>(pinning_->device());
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
  const ItemView source(*structure_, example, ItemKind::kExample, adapter_.to_array);
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
  source.copy_row(0, *core_, reservation.slot);
  core_->commit(reservation);
  gil.take_back();
}

void EchoBufferObject::put_batch(py::handle batch, std::optional<double> timeout_s) {
  const ItemView source(*structure_, batch, ItemKind::kBatch, adapter_.to_array);
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
void EchoBufferObject::put_rows(const ItemView& source, std::size_t row, const Reservation* reservations,
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
    source.copy_row(row + i, *core_, reservations[i].slot);
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
