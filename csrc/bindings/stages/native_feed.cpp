// Native producers of a stage of examples: capsules around handles of the C interface.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/stages/buffer.hpp"
#include "bindings/stages/reader.hpp"
#include "capi/buffer.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// PyGILState_Check() is no help: it is always true once the process has a sub-interpreter.
bool has_gil() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked() != nullptr;
#elif PY_VERSION_HEX >= 0x030C0000
  return _PyThreadState_UncheckedGet() != nullptr;
#else  // that of the thread with the GIL, whichever this is
  PyThreadState* const current = _PyThreadState_UncheckedGet();
  return current != nullptr && current == PyGILState_GetThisThreadState();
#endif
}

// A producer may wait with the GIL, which the consumer needs to make room.
bool wait_for_slot(const std::function<Outcome(Deadline)>& attempt, Deadline deadline, Outcome& outcome) {
  if (!has_gil()) {
    outcome = attempt(deadline);
    return true;
  }
  try {
    outcome = wait_answering_signals(deadline, attempt, [] { return false; });
  } catch (py::error_already_set& error) {
    error.restore();  // for the function that called to return NULL
    return false;
  }
  return true;
}

py::object capsule_of(capi::Buffer* handle) {
  PyObject* const capsule =
      PyCapsule_New(static_cast<pyecho_buffer*>(handle), PYECHO_CAPSULE_NAME, [](PyObject* dying) {
        auto* const held = static_cast<pyecho_buffer*>(PyCapsule_GetPointer(dying, PYECHO_CAPSULE_NAME));
        held->api->release(held);
      });
  if (capsule == nullptr) {
    handle->release();
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(capsule);
}

// Returns the description of the leaves for C. Raises ConfigError if some travel by reference.
capi::Leaves native_leaves(const Structure& structure, const RowCopier::Programs& programs) {
  capi::Leaves leaves;
  for (const LeafSpec& leaf : structure.leaves()) {
    if (leaf.by_reference) {
      raise(errors().config_error, leaf.path + " is " + leaf.described +
                                       " and travels as a reference to a Python object, which native producers "
                                       "cannot make; give it a dtype and a shape (pyecho.Field)");
    }
    const std::vector<std::int64_t> shape(leaf.shape.begin(), leaf.shape.end());
    const auto dtype = leaf.dtype.attr("str").cast<std::string>();
    leaves.push_back(
        std::make_unique<capi::Leaf>(leaf.path.c_str(), dtype.c_str(), shape, leaf.size_bytes, leaf.variable));
    leaves.back()->program = programs.empty() ? nullptr : programs[leaves.size() - 1];
  }
  return leaves;
}

}  // namespace

// One pass of a source that fills the slots itself. Needs the GIL.
class NativeFeed {
 public:
  // Raises ConfigError if some leaves travel by reference.
  NativeFeed(const Structure& structure, const RowCopier::Programs& programs, std::shared_ptr<EchoBuffer> core)
      : handle_(
            new capi::Buffer(capi::Role::kPass, native_leaves(structure, programs), std::move(core), wait_for_slot)),
        before_(handle_->core().input().accepted()) {}
  // Ends the pass: later reservations return PYECHO_CLOSED.
  ~NativeFeed() {
    handle_->close();
    handle_->release();
  }
  NativeFeed(const NativeFeed&) = delete;
  NativeFeed& operator=(const NativeFeed&) = delete;

  // Returns a capsule around the handle of this pass.
  [[nodiscard]] py::object capsule() const {
    handle_->retain();
    return capsule_of(handle_);
  }
  // Returns the time since the beginning, without that in which producers waited for room.
  [[nodiscard]] std::uint64_t source_ns() const {
    const std::uint64_t elapsed_ns = ns_of(Clock::now() - began_);
    return elapsed_ns - std::min(elapsed_ns, handle_->producer_wait_ns());
  }
  // Returns the number of items committed since the beginning, dropped ones included; exact while no thread commits.
  [[nodiscard]] std::uint64_t items() const { return handle_->core().input().accepted() - before_; }
  [[nodiscard]] capi::Buffer& handle() const noexcept { return *handle_; }

 private:
  capi::Buffer* const handle_;
  const Clock::time_point began_ = Clock::now();
  const std::uint64_t before_;  // items committed earlier
};

// ---------------------------------------------------------------- ExampleStage

std::uint64_t ExampleStage::feeding_ns() const { return native_feed_ ? native_feed_->source_ns() : 0; }

capi::Buffer* ExampleStage::native_handle() const {
  return capsule_
             ? capi::Buffer::of(static_cast<pyecho_buffer*>(PyCapsule_GetPointer(capsule_.ptr(), PYECHO_CAPSULE_NAME)))
             : nullptr;
}

void ExampleStage::check_no_producer() const {
  const capi::Buffer* const native = native_handle();
  const std::uint64_t inside = producers_.load_acquire() + (native == nullptr ? 0 : native->waiting());
  const std::uint64_t open = core_->input().open_reservations();
  if (inside + open > 0) {
    raise(errors().echo_error,
          "a state is loaded while no thread puts, and here " + std::to_string(inside) +
              " are inside of put(), put_batch() or reserve(), and " + std::to_string(open) +
              " slots are reserved, whose examples would come into the loaded run; call stop(), which ends the waits, "
              "commit or abort the slots, and join the threads first");
  }
}

void ExampleStage::follow_core() {
  if (capi::Buffer* const native = native_handle(); native != nullptr) {
    native->follow(core_);
  }
}

// Always the same one, so that its pointer is good for as long as the buffer, whatever its core.
py::object ExampleStage::capsule() {
  if (!capsule_) {
    capsule_ = capsule_of(
        new capi::Buffer(capi::Role::kProducer, native_leaves(structure_, config_.programs), core_, wait_for_slot));
  }
  return capsule_;
}

std::optional<bool> ExampleStage::put_pass(const py::object& pass) {
  if (py::hasattr(pass, kFill)) {
    slot_came_ = Clock::now();
    try {
      return call_python([&] { return pass.attr(kFill)(py::cast(this)); }).cast<std::optional<bool>>();
    } catch (const py::error_already_set&) {
      if (!core_->input().stopped()) {
        throw;
      }
      return std::nullopt;
    }
  }
  const auto feed = std::make_shared<NativeFeed>(structure_, config_.programs, core_);
  const auto skipped = pass.attr("start").cast<std::uint64_t>();
  if (skipped > 0) {
    core_->skip(skipped);
  }
  native_feed_ = feed;
  const auto end = [&] {
    native_feed_.reset();
    source_clock_.worked(feed->source_ns(), feed->items());
    feed->handle().close();
    return feed->handle().abort_open();
  };
  try {
    call_python([&] { return pass.attr(kFeed)(feed->capsule()); });
  } catch (...) {
    end();
    throw;
  }
  const std::uint32_t waiting = feed->handle().waiting();
  if (waiting > 0) {
    feed->handle().retain();  // for good: threads inside do not tell when they leave
  }
  const std::size_t open = end();
  if (core_->input().stopped()) {
    return feed->items() > 0;
  }
  if (open + waiting > 0) {
    raise(errors().echo_error, "__pyecho_feed__ returned while " +
                                   (open > 0 ? std::to_string(open) + " slots were reserved"
                                             : std::to_string(waiting) + " threads waited for slots") +
                                   "; commit or abort each, and join threads that fill slots, before it returns");
  }
  if (feed->items() < skipped && !core_->failed()) {
    raise(errors().checkpoint_error, "the source ended after " + std::to_string(feed->items()) +
                                         " examples, and the state was taken after it had put " +
                                         std::to_string(skipped) + "; a native source must put the same ones again");
  }
  return feed->items() > 0;
}

void ExampleStage::find_native_failure() {
  if (!failure_.is_none()) {
    return;
  }
  if (const std::optional<std::string> message = core_->take_failure()) {
    const py::object text = owned(  // of a library perhaps, in whatever encoding
        PyUnicode_DecodeUTF8(message->data(), static_cast<Py_ssize_t>(message->size()), "replace"));
    failure_ = py::reinterpret_borrow<py::object>(PyExc_RuntimeError)(text);
  }
}

}  // namespace pyecho::bindings
