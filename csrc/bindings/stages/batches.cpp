// The consumer's side of ExampleStage: leases become batches of arrays.
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/ownership.hpp"
#include "bindings/stages/buffer.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Returns a new capsule for a lease, the base of the arrays of a batch. When it is destroyed, the lease ends.
py::object new_capsule() {
  auto kept = std::make_unique<Lease>();
  py::object capsule = owned(PyCapsule_New(kept.get(), nullptr, [](PyObject* dying) {
    const std::unique_ptr<Lease> held(static_cast<Lease*>(PyCapsule_GetPointer(dying, nullptr)));
  }));
  std::ignore = kept.release();  // the capsule's
  give_up_ownership(capsule.ptr());
  return capsule;
}

}  // namespace

Lease& lease_of(const py::object& capsule) noexcept {
  return *static_cast<Lease*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
}

Outcome ExampleStage::try_emit(PyObject*& emission) {
  if (!pending_) {
    const Outcome outcome = take_batch();
    if (outcome != Outcome::kOk) {
      return outcome;
    }
  }
  // If delivery fails, pending_ keeps the batch for the next call.
  // A reference of its own, because another thread, or the hook of a warning, may stop the buffer meanwhile.
  const py::object owner = pending_;
  warn_of_growth();
  Lease& lease = lease_of(owner);
  switch (delivery_) {
    case Delivery::kLent:
      emission = make_batch(lease, owner).release().ptr();
      references_.taken(entries_of(lease), lease.uses());
      break;
    case Delivery::kSent:
      emission = sent_batch(lease).release().ptr();
      references_.taken(entries_of(lease), lease.uses());
      break;
    case Delivery::kGiven: {
      Upload none;
      HostMemory next = new_memory(core_->layout().batch_bytes(), none);
      emission = make_batch(lease, static_cast<PyObject*>(lease.owner())).release().ptr();
      references_.taken(entries_of(lease), lease.uses());
      lease.exchange(std::move(next));
    }
  }
  pending_ = py::object();
  return Outcome::kOk;
}

// Sets pending_ to the next batch that has enough rows.
inline Outcome ExampleStage::take_batch() {
  for (;;) {
    if (!next_capsule_) {  // first, since a batch that is taken needs it
      next_capsule_ = new_capsule();
    }
    Lease lease = std::move(acquired_);
    Outcome outcome = core_->input().stopped() ? Outcome::kClosed : Outcome::kOk;
    if (!lease) {
      outcome = without_gil(config_.threads == 0 && core_->layout().batch_bytes() >= kGilFreeBytes,
                            [&] { return core_->try_acquire(lease); });
    }
    check_log(core_->view().diverged());
    if (outcome == Outcome::kExhausted) {
      raise_exhausted();
    }
    if (outcome == Outcome::kEnd && core_->at_end()) {  // with an adaptive factor, some are left
      references_.clear();
    }
    if (outcome != Outcome::kOk) {
      return outcome;
    }
    if (!config_.drop_last || lease.rows() == config_.plan.batch_size) {
      lease_of(next_capsule_) = std::move(lease);
      pending_ = std::exchange(next_capsule_, {});
      return Outcome::kOk;
    }
    references_.taken(entries_of(lease), lease.uses());
    ++dropped_;
  }
}

Outcome ExampleStage::wait(Deadline slice) {
  if (by_consumer_ && core_->needed() > 0) {
    return Outcome::kEmpty;  // a block was returned, and now items are missing
  }
  return core_->acquire(acquired_, slice);
}

// Warns once of added batches. If the warning is an error, the next call returns the batch.
void ExampleStage::warn_of_growth() {
  if (warned_of_growth_ || core_->stats().grown_blocks == 0) {
    return;
  }
  warned_of_growth_ = true;
  call_python([] {
    const py::object warn = py::module_::import("pyecho.warn").attr("warn");
    return warn(
        "the consumer keeps batches, so pyecho allocates more of them; drop batches after use, or set max_bytes to "
        "bound the memory",
        py::handle(PyExc_ResourceWarning));
  });
}

HostMemory ExampleStage::new_memory(std::size_t size_bytes, Upload& upload) const {
  const py::object made = call_python([&] { return new_memory_(size_bytes); });
  auto [address, owner] = made.cast<std::pair<std::uintptr_t, py::object>>();
  if (config_.uploads != nullptr) {
    const auto pointer = [&](const char* name) {
      return reinterpret_cast<void*>(owner.attr(name).cast<std::uintptr_t>());  // NOLINT(performance-no-int-to-ptr)
    };
    upload = {.to = pointer("to"), .free = pointer("free_event"), .arrived = pointer("arrived_event")};
  }
  std::shared_ptr<void> kept(owner.release().ptr(), [](void* held) {
    if (Py_IsInitialized() == 0) {
      return;  // native code has kept the buffer for longer than the interpreter, which took its objects along
    }
    ParkIfKilled park;
    const py::gil_scoped_acquire gil;
    park.passed();
    Py_DECREF(static_cast<PyObject*>(held));
  });
  return {reinterpret_cast<std::byte*>(address), size_bytes, std::move(kept)};  // NOLINT(performance-no-int-to-ptr)
}

py::object ExampleStage::make_batch(const Lease& lease, py::handle owner) {
  std::vector<py::object> leaves(structure_.leaves().size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const SlotLayout::Leaf& leaf = core_->layout().leaves()[i];
    if (leaf.ragged) {
      leaves[i] = ragged_leaf(i, lease, owner);
    } else if (!structure_.leaves()[i].by_reference) {
      leaves[i] = array_leaf(i, lease.data() + leaf.batch_offset, lease.rows(), owner);
    }
  }
  return batch_of(leaves, lease, [&](const py::object& column) { return column; }, owner);
}

// Returns a batch that was sent, as the owner of its memory makes it on the device. If this raises, it can be repeated.
py::object ExampleStage::sent_batch(const Lease& lease) const {
  // A reference of its own: stop() in another thread may drop the stage meanwhile.
  const auto owner = py::reinterpret_borrow<py::object>(static_cast<PyObject*>(lease.owner()));
  if (lease.upload().error != 0) {
    call_python([&] { return owner.attr("send_again")(); });  // raises what PyTorch says, if it fails again
    lease.upload().error = 0;
  }
  const py::list made = call_python([&] { return owner.attr("leaves")(lease.rows()); });
  std::vector<py::object> leaves;
  for (const py::handle leaf : made) {
    leaves.push_back(py::reinterpret_borrow<py::object>(leaf));
  }
  const auto copy = [](const py::object& column) { return owned(PyArray_NewCopy(as_array(column), NPY_CORDER)); };
  py::object emission = batch_of(leaves, lease, copy, owner);
  const auto next = call_python([&] { return owner.attr("go_on")(); }).cast<std::uintptr_t>();
  lease.upload().to = reinterpret_cast<void*>(next);  // NOLINT(performance-no-int-to-ptr)
  return emission;
}

// Returns the batch of these leaves, those that travel by reference apart, and its info if that is wanted: `keep` makes
// it of arrays on the lease's memory.
template <class Keep>
inline py::object ExampleStage::batch_of(std::vector<py::object>& leaves, const Lease& lease, const Keep& keep,
                                         py::handle owner) const {
  for (std::size_t position = 0; const std::size_t leaf : structure_.reference_leaves()) {
    leaves[leaf] = reference_list(position++, entries_of(lease));
  }
  py::object emission = structure_.unflatten(leaves);
  if (config_.with_info) {
    const auto column = [&](std::size_t offset, int type) {
      const npy_intp dims[] = {static_cast<npy_intp>(lease.rows())};
      auto* const dtype = reinterpret_cast<PyObject*>(PyArray_DescrFromType(type));
      return keep(array_on(lease.data() + offset, py::reinterpret_steal<py::object>(dtype), dims, owner));
    };
    const py::object source_index = column(core_->layout().source_index_offset(), NPY_INT64);
    const py::object use = column(core_->layout().use_offset(), NPY_INT32);
    py::object info = call_python([&] { return info_type_(source_index, use); });
    emission = py::make_tuple(std::move(emission), std::move(info));
  }
  give_up_nest(emission.ptr());
  return emission;
}

// The elements keep the batch, unless its memory leaves it: then they have an owner of their own.
py::object ExampleStage::ragged_leaf(std::size_t index, const Lease& lease, py::handle owner) const {
  const SlotLayout::Leaf& leaf = core_->layout().leaves()[index];
  const py::object dtype = row_leaves_[index].dtype;
  const auto element_bytes = static_cast<std::size_t>(std::max<npy_intp>(1, PyDataType_ELSIZE(as_descr(dtype))));
  Values& values = lease.values(index);
  std::vector<npy_intp> extents{static_cast<npy_intp>(values.size_bytes() / element_bytes)};
  if (!leaf.pad.empty()) {
    extents = {static_cast<npy_intp>(lease.rows())};
    extents.insert(extents.end(), lease.places(index).begin(), lease.places(index).end());
  }
  auto memory = py::reinterpret_borrow<py::object>(owner);
  if (!new_memory_.is_none()) {
    auto kept = std::make_unique<std::shared_ptr<std::byte>>(values.share());
    memory = py::capsule(kept.get(), [](void* dying) { delete static_cast<std::shared_ptr<std::byte>*>(dying); });
    std::ignore = kept.release();  // the capsule's
  }
  const py::object elements = array_on(values.data(), dtype, extents, memory);
  const npy_intp dims[] = {static_cast<npy_intp>(lease.rows()), static_cast<npy_intp>(leaf.variable.axes)};
  auto* const extent = reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_INT64));
  const py::object shapes =
      array_on(lease.data() + leaf.batch_offset, py::reinterpret_steal<py::object>(extent), dims, owner);
  return call_python([&] { return ragged_(elements, shapes, index); });
}

py::object ExampleStage::array_leaf(std::size_t index, std::byte* data, std::uint32_t rows, py::handle owner) const {
  const LeafSpec& leaf = row_leaves_[index];
  std::array<npy_intp, NPY_MAXDIMS> dims{};
  dims[0] = static_cast<npy_intp>(rows);
  std::ranges::copy(leaf.shape, dims.begin() + 1);
  py::object array = array_on(data, leaf.dtype, std::span(dims).first(leaf.shape.size() + 1), owner);
  if (from_array_.is_none()) {
    return array;
  }
  give_up_ownership(array.ptr());
  return call_python([&] { return from_array_(std::move(array), index); });
}

// Returns the entry of the ReferenceTable for each row; empty if there are no references.
std::span<const ReferenceTable::Entry> ExampleStage::entries_of(const Lease& lease) const noexcept {
  if (!has_references_) {
    return {};
  }
  const std::byte* const region = lease.data() + core_->layout().leaves().back().batch_offset;
  return {reinterpret_cast<const ReferenceTable::Entry*>(region), lease.rows()};
}

// Returns the list for the reference leaf at `position` among the reference leaves. Raises Closed if stop() came first.
py::list ExampleStage::reference_list(std::size_t position, std::span<const ReferenceTable::Entry> entries) const {
  py::list list(entries.size());
  for (std::size_t row = 0; row < entries.size(); ++row) {
    if (!references_.contains(entries[row])) {
      raise_outcome(Outcome::kClosed, name());
    }
    PyObject* const leaf = PyTuple_GET_ITEM(references_.at(entries[row]).ptr(), static_cast<Py_ssize_t>(position));
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(row), Py_NewRef(leaf));
  }
  return list;
}

void ExampleStage::set_references(std::uint32_t slot, py::tuple references) {
  const Section section(lock());
  const ReferenceTable::Entry entry = references_.put(std::move(references), slot, core_->batches_ahead());
  std::memcpy(entry_of(slot), &entry, sizeof(entry));
}

void ExampleStage::drop_references(std::uint32_t slot) {
  const Section section(lock());
  ReferenceTable::Entry entry = 0;
  std::memcpy(&entry, entry_of(slot), sizeof(entry));
  references_.drop(entry);
}

void ExampleStage::raise_exhausted() const {
  const EchoStats stats = core_->stats();
  const std::string refusal = core_->refusal();
  const bool ours = refusal.empty();  // true if max_bytes is the limit, not the system
  raise(errors().buffer_exhausted,
        "all " + std::to_string(stats.batch_blocks) + " batches" +
            (ours ? " that max_bytes = " + readable_bytes(config_.max_bytes) + " allows" : "") +
            " are held by the consumer (" + std::to_string(stats.outstanding_leases) + " outstanding leases)" +
            (ours ? "" : ", and none can be added: " + refusal) +
            "; drop batches you no longer need (then go on), copy what you keep, or " +
            (ours ? "raise max_bytes" : "make room for more"));
}

}  // namespace pyecho::bindings
