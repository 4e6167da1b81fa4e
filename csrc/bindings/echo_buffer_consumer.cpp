// The consumer's side of EchoBufferObject: leases become batches of arrays.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/echo_buffer.hpp"
#include "bindings/errors.hpp"
#include "bindings/lease_object.hpp"
#include "bindings/waiting.hpp"
#include "cuda/pinning.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// How often to look for batches that the device is done with, while waiting for one.
constexpr std::chrono::milliseconds kRetirementLook{1};

}  // namespace

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

}  // namespace pyecho::bindings
